//! The Unix socket of the driver: its file, and another process that may listen there.

use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{UnixListener, UnixStream};

use crate::ServeError;

/// The file of a listening socket; gone when this is dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // No one can act on a failure: the next driver replaces a file that no one answers at.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens at the path, for this user only. A socket file on which no process listens is replaced.
///
/// # Errors
/// [`ServeError::Taken`] if another process listens there, [`ServeError::Socket`] if the file is
/// not a socket or cannot be created.
pub(super) async fn listen(at: &Path) -> Result<(UnixListener, SocketFile), ServeError> {
    make_room(at).await?;
    let bound = UnixListener::bind(at);
    let listener = bound.map_err(|source| unusable(at, source))?;
    let file = SocketFile(at.to_owned());
    std::fs::set_permissions(at, PermissionsExt::from_mode(0o600))
        .map_err(|source| unusable(at, source))?;
    Ok((listener, file))
}

async fn make_room(at: &Path) -> Result<(), ServeError> {
    if let Some(directory) = at.parent() {
        std::fs::create_dir_all(directory).map_err(|source| unusable(at, source))?;
    }
    match std::fs::symlink_metadata(at) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(fault) => return Err(unusable(at, fault)),
        Ok(file) if !file.file_type().is_socket() => {
            let source = io::Error::other("the file there is not a socket");
            return Err(unusable(at, source));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(at).await {
        Err(fault) if fault.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(at).map_err(|source| unusable(at, source))
        }
        Err(fault) => Err(unusable(at, fault)),
        Ok(_) => Err(ServeError::Taken { socket: at.to_owned() }),
    }
}

fn unusable(at: &Path, source: io::Error) -> ServeError {
    ServeError::Socket { socket: at.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_private_and_goes_with_its_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("made/csi.sock");
        let (_listener, file) = listen(&path).await.unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(listen(&path).await, Err(ServeError::Taken { .. })));
        drop(file);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn only_a_dead_socket_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("csi.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(listen(&path).await.unwrap());
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(listen(&path).await, Err(ServeError::Socket { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }
}
