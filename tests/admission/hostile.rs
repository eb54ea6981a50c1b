//! Anybody in the cluster may connect to the webhook: none of them keeps an API server out, or fills its memory.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::client::TlsStream;

use crate::pods::{Site, review};
use crate::world::{connect, trusted};

/// Another address of this machine than that of the API server.
const STRANGER: &str = "127.0.0.2:0";

/// The longest that a connection is waited for which makes way.
const LIMIT: Duration = Duration::from_secs(30);

/// How many connections there may be.
const MOST: usize = 256;

/// A connection of a stranger, on which keys are agreed on.
async fn stranger(site: &Site) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(STRANGER.parse::<SocketAddr>().unwrap()).unwrap();
    let stream = socket.connect(site.address).await.unwrap();
    connect(stream, &trusted(&site.api), site.hand.now()).await.unwrap()
}

/// Read until the other side ends it, which it does within the time that a question may take.
async fn last_words(stream: &mut TlsStream<TcpStream>) -> String {
    let mut said = Vec::new();
    // It may end without a farewell.
    let ended = tokio::time::timeout(LIMIT, stream.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "the connection is kept");
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test]
async fn a_crowd_of_silent_connections_keeps_no_api_server_out() {
    let site = Site::start().await;
    let mut crowd = Vec::new();
    for _ in 0..MOST + 40 {
        crowd.push(stranger(&site).await);
    }
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
    // The first ones made way.
    for stream in crowd.iter_mut().take(40) {
        assert_eq!(last_words(stream).await, "");
    }
}

#[tokio::test]
async fn who_sends_without_end_fills_no_memory() {
    const LENGTH: usize = (4 << 20) - 1;
    let site = Site::start().await;
    let mut strangers = JoinSet::new();
    for _ in 0..6 {
        let mut stream = stranger(&site).await;
        strangers.spawn(async move {
            let head =
                format!("POST /pods HTTP/1.1\r\nhost: x\r\ncontent-length: {LENGTH}\r\n\r\n");
            // All but the last bytes, and then nothing.
            let body = vec![b' '; LENGTH - 10];
            let sent = async {
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&body).await?;
                stream.flush().await
            };
            let _ = sent.await; // It may be refused midway.
            last_words(&mut stream).await
        });
    }
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
    let words = strangers.join_all().await;
    let waited = words.iter().filter(|words| words.starts_with("HTTP/1.1 408")).count();
    assert!(waited <= 2, "of eight MiB two have a place: {words:?}");
}

/// Post a review of a pod on a connection of its own; the first line of the answer.
async fn status_of_review(site: &Site, pod: &str) -> String {
    let body = serde_json::to_vec(&review(pod, "CREATE")).unwrap();
    let head = format!(
        "POST /pods HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = stranger(site).await;
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    last_words(&mut stream).await.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_panic_in_one_review_is_the_answer_to_that_one() {
    let site = Site::start().await;
    site.api.panic_at(Some("statefulsets"));
    for _ in 0..2 * 16 {
        // As many more as are answered at a time: none of them keeps its place. The failurePolicy decides.
        assert_eq!(status_of_review(&site, "db-0").await, "HTTP/1.1 500 Internal Server Error");
    }
    site.api.panic_at(None);
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
}

#[tokio::test]
async fn a_question_without_a_length_has_an_end() {
    let site = Site::start().await;
    let mut stream = stranger(&site).await;
    let head = "POST /pods HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b' '; 0x10000], b"\r\n"].concat();
    let mut sent = 0;
    while stream.write_all(&chunk).await.is_ok() && stream.flush().await.is_ok() {
        sent += 0x10000;
        assert!(sent < 64 << 20, "nobody stops it");
    }
    assert_eq!(site.claim_of("db-0").await, "data-0-aa");
}
