//! Where the driver is reached: a Unix socket, its file, and who else may be there.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tokio::net::{UnixListener, UnixStream};

use crate::csi::ServeError;

/// The longest path of a Unix socket: `sun_path` of unix(7), without its closing zero.
const LONGEST: usize = 107;

/// The address of a Unix socket, printed as `unix:///run/pliant/csi.sock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

impl Endpoint {
    /// The socket file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.0.display())
    }
}

/// The text is not the address of a Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an endpoint: write unix:// and an absolute path of at most {LONGEST} bytes, \
     e.g. unix:///run/pliant/csi.sock"
)]
pub struct EndpointError(String);

/// Parses `unix:///PATH`, `unix:/PATH` or a bare absolute path.
impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let path = text.strip_prefix("unix:").unwrap_or(text);
        let path = path.strip_prefix("//").unwrap_or(path);
        let names_a_file = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
        if names_a_file && path.len() <= LONGEST {
            Ok(Endpoint(PathBuf::from(path)))
        } else {
            Err(EndpointError(text.to_owned()))
        }
    }
}

/// The file of a listening socket; gone when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Nobody can act on a failure: the next driver replaces a file that nobody answers at.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listen at the endpoint, for this user only; a socket file that nobody answers at is replaced.
///
/// # Errors
/// [`ServeError::Taken`] if another process answers there, [`ServeError::Socket`] if the file is
/// something else or cannot be made.
pub(super) async fn listen(at: &Endpoint) -> Result<(UnixListener, SocketFile), ServeError> {
    make_room(at).await?;
    let bound = UnixListener::bind(at.path());
    let listener = bound.map_err(|source| unusable(at, source))?;
    let file = SocketFile(at.path().to_owned());
    std::fs::set_permissions(at.path(), PermissionsExt::from_mode(0o600))
        .map_err(|source| unusable(at, source))?;
    Ok((listener, file))
}

async fn make_room(at: &Endpoint) -> Result<(), ServeError> {
    if let Some(directory) = at.path().parent() {
        std::fs::create_dir_all(directory).map_err(|source| unusable(at, source))?;
    }
    match std::fs::symlink_metadata(at.path()) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(fault) => return Err(unusable(at, fault)),
        Ok(file) if !file.file_type().is_socket() => {
            let source = io::Error::other("the file there is not a socket");
            return Err(unusable(at, source));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(at.path()).await {
        Err(fault) if fault.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(at.path()).map_err(|source| unusable(at, source))
        }
        Err(fault) => Err(unusable(at, fault)),
        Ok(_) => Err(ServeError::Taken {
            endpoint: at.clone(),
        }),
    }
}

fn unusable(at: &Endpoint, source: io::Error) -> ServeError {
    ServeError::Socket {
        endpoint: at.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_ways_to_write_a_socket() {
        for text in ["unix:///run/a.sock", "unix:/run/a.sock", "/run/a.sock"] {
            let endpoint = text.parse::<Endpoint>().unwrap();
            assert_eq!(endpoint.to_string(), "unix:///run/a.sock");
        }
        let long = format!("/{}", "a".repeat(LONGEST));
        for text in [
            "",
            "unix://",
            "unix://run/a.sock",
            "tcp://[::1]:1",
            "/run/",
            &long,
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_socket_is_private_and_goes_with_its_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("made/csi.sock");
        let at: Endpoint = path.to_str().unwrap().parse().unwrap();
        let (_listener, file) = listen(&at).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(listen(&at).await, Err(ServeError::Taken { .. })));
        drop(file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_a_dead_socket_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("csi.sock");
        let at: Endpoint = path.to_str().unwrap().parse().unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(listen(&at).await.unwrap());
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&at).await, Err(ServeError::Socket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
