//! What the kubelet asks a driver that registers itself.

use std::path::{Path, PathBuf};

use pliant::csi::ServeError;
use pliant::csi::registration::pb::registration_client::RegistrationClient;
use pliant::csi::registration::pb::{InfoRequest, RegistrationStatus};
use pliant::csi::registration::register;
use pliant::volume::DRIVER;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::socket::connect;

/// A driver that registers itself, and the kubelet's end of the socket.
struct Registered {
    kubelet: RegistrationClient<Channel>,
    stop: CancellationToken,
    served: JoinHandle<Result<(), ServeError>>,
    socket: PathBuf,
    _place: tempfile::TempDir,
}

impl Registered {
    async fn start() -> Registered {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("pliant-reg.sock");
        let (at, stop) = (socket.clone(), CancellationToken::new());
        let ended = stop.clone();
        let served = tokio::spawn(async move {
            register(&at, Path::new("/var/lib/kubelet/plugins/pliant/csi.sock"), ended).await
        });
        let kubelet = RegistrationClient::new(connect(&socket).await);
        Registered { kubelet, stop, served, socket, _place: place }
    }

    async fn notify(&mut self, plugin_registered: bool) {
        let error = if plugin_registered { String::new() } else { "too old".to_owned() };
        let told = RegistrationStatus { plugin_registered, error };
        self.kubelet.notify_registration_status(told).await.unwrap();
    }

    async fn ended(self) -> Result<(), ServeError> {
        drop(self.kubelet);
        self.served.await.unwrap()
    }
}

#[tokio::test]
async fn the_kubelet_is_told_who_the_driver_is_and_where() {
    let mut driver = Registered::start().await;
    for _ in 0..2 {
        // A kubelet that starts anew asks again.
        let info = driver.kubelet.get_info(InfoRequest {}).await.unwrap().into_inner();
        assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", DRIVER));
        assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/pliant/csi.sock");
        assert_eq!(info.supported_versions, ["1.0.0"]);
        driver.notify(true).await;
    }
    driver.stop.cancel();
    let socket = driver.socket.clone();
    driver.ended().await.unwrap();
    assert!(!socket.exists(), "a kubelet would ask there for ever");
}

#[tokio::test]
async fn a_driver_that_the_kubelet_refuses_ends_with_a_sentence() {
    let mut driver = Registered::start().await;
    driver.notify(false).await;
    let error = driver.ended().await.unwrap_err();
    assert!(error.to_string().contains("the kubelet rejected the driver"), "{error}");
}
