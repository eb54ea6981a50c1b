//! A device that a pod sends.

use super::client::Remote;
use super::connection::Frame;
use super::message::{MessageReader, nonsense};
use super::prefetch::{PrefetchConnection, RemoteBytes};
use super::transfer::{Job, word};
use crate::copy::{CopyError, SourceDisk, Sum, Tick};

/// A device that a pod sends.
#[derive(Debug, Clone)]
pub struct RemoteDisk(pub Remote);

impl SourceDisk for RemoteDisk {
    type Bytes = RemoteBytes;

    fn open(&self) -> Result<(Self::Bytes, u64), CopyError> {
        PrefetchConnection::of(&self.0)?.disk()
    }

    fn sum(&self, size: u64, limit: Option<u64>, tick: Tick) -> Result<Sum, CopyError> {
        let mut stream = self.0.connect(Job::Sum { size, limit })?;
        loop {
            let Frame { word, body } = stream.next()?;
            let mut take = MessageReader(body);
            let said = match word {
                word::TICK => take.u64().map(Ok),
                word::SUM => {
                    take.digest().and_then(|digest| Ok(Err(Sum { digest, stored: take.u64()? })))
                }
                _ => Err(nonsense("an invalid part of a checksum")),
            };
            match stream.said(said)? {
                Ok(bytes) => tick(bytes)?,
                Err(sum) => return Ok(sum),
            }
        }
    }

    fn name(&self) -> String {
        format!("the device at {}", self.0.address)
    }
}
