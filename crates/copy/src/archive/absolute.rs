//! Requests http URLs through a proxy with the absolute form in the request line. The client would
//! open a tunnel, and many proxies allow those for https only.

use std::io;

use http::Uri;
use ureq::Error;
use ureq::unversioned::transport::{Buffers, ConnectionDetails, Connector, NextTimeout, Transport};

/// The beginning of the only request that is made.
const GET: &[u8] = b"GET ";

/// Puts the server before the path that a proxy is asked for.
#[derive(Debug)]
pub struct AbsoluteForm;

impl<In: Transport> Connector<In> for AbsoluteForm {
    type Out = ProxyConnection<In>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> Result<Option<ProxyConnection<In>>, Error> {
        Ok(chained.map(|inner| ProxyConnection { inner, server: Some(server(details.uri)) }))
    }
}

fn server(uri: &Uri) -> String {
    let authority = uri.authority().map(http::uri::Authority::as_str);
    format!("http://{}", authority.unwrap_or_default())
}

/// A connection to a proxy.
#[derive(Debug)]
pub struct ProxyConnection<In> {
    inner: In,
    /// Until it has been asked.
    server: Option<String>,
}

impl<In: Transport> Transport for ProxyConnection<In> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let Some(server) = self.server.take() else {
            return self.inner.transmit_output(amount, timeout);
        };
        let (from, length) = (GET.len(), server.len());
        let output = self.inner.buffers().output();
        if !output.starts_with(GET) || amount + length > output.len() {
            return Err(
                io::Error::other("the request is not a GET, or is longer than its buffer").into()
            );
        }
        output.copy_within(from..amount, from + length);
        output[from..from + length].copy_from_slice(server.as_bytes());
        self.inner.transmit_output(amount + length, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.inner.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }
}
