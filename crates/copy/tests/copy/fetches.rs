//! Archives from an address: by http and by https, by a proxy and without one.

use std::io::Write;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use pliant_copy::archive::{ArchiveSource, HttpUrl, Proxies, Reach, Route, UnpackOptions, unpack};
use pliant_copy::copy::{CopyError, CopySummary, Digest, Hand, ProgressReporter};
use pliant_volume::error_chain::in_full;
use rustls::{ServerConnection, StreamOwned};

use crate::servers::{answer, head, keys, keys_of, proxy, serve, serve_tls};
use crate::tarballs::{good, is_as_it_was};
use crate::world::{World, is_root};

fn proxies(variables: &[(&str, &str)]) -> Proxies {
    Proxies::read(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    })
    .unwrap()
}

fn fetched(world: &World, url: &str, archive: &[u8]) -> Result<CopySummary, CopyError> {
    fetched_by(&Route::default(), world, url, archive)
}

fn fetched_within(
    reach: &Reach,
    world: &World,
    url: &str,
    archive: &[u8],
) -> Result<CopySummary, CopyError> {
    fetched_by(&Route { reach: reach.clone(), ..Route::default() }, world, url, archive)
}

fn fetched_by(
    route: &Route,
    world: &World,
    url: &str,
    archive: &[u8],
) -> Result<CopySummary, CopyError> {
    let address: HttpUrl = url.parse().unwrap();
    let (origin, sum) = (ArchiveSource::Address(&address, route), Digest::of(archive));
    let target = world.target();
    let order = UnpackOptions { origin, sum, target: &target, owners: is_root(), max_size: None };
    unpack(&order, &Hand::default(), &mut ProgressReporter::silent())
}

#[test]
fn an_archive_is_fetched_also_from_where_it_has_moved_to() {
    let world = World::new();
    let archive = good();
    let moved = answer("302 Found\r\nLocation: /b/c.tar?k=v", b"gone");
    let (url, served) = serve(vec![moved, answer("200 OK", &archive)]);
    let outcome = fetched(&world, &format!("{url}/a.tar"), &archive).unwrap();
    assert_eq!(outcome.files, 7);
    assert_eq!(served.join().unwrap(), ["GET /a.tar HTTP/1.1", "GET /b/c.tar?k=v HTTP/1.1"]);
}

#[test]
fn answers_that_are_no_archive_are_errors_and_leave_nothing() {
    let world = World::new();
    let archive = good();
    let cut = answer("200 OK", &archive)[..1_000_000].to_vec();
    let round = || answer("301 Moved Permanently\r\nLocation: /x", b"");
    let cases = [
        (vec![answer("404 Not Found", b"no")], 2),
        (vec![answer("503 Service Unavailable", b"no")], 5),
        (vec![cut], 5),
        (vec![answer("200 OK", b"<html>")], 2),
        (vec![answer("302 Found\r\nLocation: file:///etc/passwd", b"")], 2),
        ((0..6).map(|_| round()).collect(), 2),
        (vec![Vec::new()], 5),
    ];
    for (answers, code) in cases {
        let (url, served) = serve(answers);
        let error = fetched(&world, &url, &archive).unwrap_err();
        assert_eq!(error.code(), code, "{error:?}");
        assert!(is_as_it_was(&world), "{error}");
        served.join().unwrap();
    }
}

#[test]
fn what_is_not_public_is_not_asked_by_address_by_name_or_after_a_redirection() {
    let world = World::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let public = Reach { public_only: true, ..Reach::default() };
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433"] {
        let url = format!("http://{host}:{port}/a.tar");
        let error = fetched_within(&public, &world, &url, b"").unwrap_err();
        assert_eq!(error.code(), 2, "{error}");
        assert!(error.to_string().contains("does not resolve to a public address"), "{error}");
    }
    // What is allowed leads on to what is not.
    let allowed = vec!["127.0.0.1/32".parse().unwrap()];
    let allowed = Reach { public_only: true, allowed, ..Reach::default() };
    for host in ["127.0.0.2", "[::1]", "169.254.169.254"] {
        let moved = format!("302 Found\r\nLocation: http://{host}:{port}/b.tar");
        let (url, served) = serve(vec![answer(&moved, b"")]);
        let error = fetched_within(&allowed, &world, &url, b"").unwrap_err();
        assert!(
            error.to_string().contains("/b.tar does not resolve to a public address"),
            "{error}"
        );
        assert_eq!(served.join().unwrap().len(), 1);
    }
    listener.set_nonblocking(true).unwrap();
    let waits = listener.accept().map(|(_, from)| from);
    assert_eq!(waits.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    // And is fetched from itself.
    let archive = good();
    let (url, served) = serve(vec![answer("200 OK", &archive)]);
    fetched_within(&allowed, &world, &url, &archive).unwrap();
    served.join().unwrap();
}

#[test]
fn a_server_is_believed_if_its_authority_is_known_here_or_in_the_bundle() {
    let world = World::new();
    let archive = good();
    let keys = keys();
    let (url, served) = serve_tls(&keys, vec![answer("200 OK", &archive)]);
    let error = fetched(&world, &format!("{url}/a.tar?signature=secret"), &archive).unwrap_err();
    // Another try helps once the bundle is given.
    assert_eq!(error.code(), 5, "{error:?}");
    let error = in_full(&error);
    assert!(error.contains("/a.tar: its certificate is signed by an unknown authority"), "{error}");
    assert!(error.contains("populator.caBundle") && error.contains("--ca-bundle"), "{error}");
    assert!(!error.contains("secret"), "{error}");
    assert!(served.join().unwrap().is_empty() && is_as_it_was(&world));
    let (url, served) = serve_tls(&keys, vec![answer("200 OK", &archive)]);
    let outcome = fetched_by(&keys.route(), &world, &format!("{url}/a.tar"), &archive).unwrap();
    assert_eq!(outcome.files, 7);
    assert_eq!(served.join().unwrap(), ["GET /a.tar HTTP/1.1"]);
}

#[test]
fn a_certificate_of_another_host_or_of_yesterday_is_not_believed() {
    for (keys, why) in [
        (keys_of("other.example", 200), "not valid for name"),
        (keys_of("localhost", 40), "expired"),
    ] {
        let world = World::new();
        let (url, served) = serve_tls(&keys, vec![answer("200 OK", &good())]);
        let error = fetched_by(&keys.route(), &world, &url, &good()).unwrap_err();
        assert_eq!(error.code(), 5, "{error:?}");
        let error = in_full(&error);
        assert!(error.contains(why), "{why}: {error}");
        assert!(served.join().unwrap().is_empty() && is_as_it_was(&world));
    }
}

#[test]
fn https_leads_to_https_alone() {
    let world = World::new();
    let (archive, keys) = (good(), keys());
    let (to, second) = serve_tls(&keys, vec![answer("200 OK", &archive)]);
    let moved = answer(&format!("307 Temporary Redirect\r\nLocation: {to}/b.tar"), b"");
    let (url, first) = serve_tls(&keys, vec![moved]);
    fetched_by(&keys.route(), &world, &url, &archive).unwrap();
    assert_eq!(second.join().unwrap(), ["GET /b.tar HTTP/1.1"]);
    first.join().unwrap();
    let moved = answer("307 Temporary Redirect\r\nLocation: http://localhost:1/b.tar", b"");
    let (url, served) = serve_tls(&keys, vec![moved]);
    world.clear();
    let error = fetched_by(&keys.route(), &world, &url, &archive).unwrap_err();
    assert!(error.to_string().ends_with("which is not https"), "{error}");
    assert_eq!((error.code(), served.join().unwrap().len()), (2, 1));
}

#[test]
fn https_goes_through_the_tunnel_of_a_proxy_and_the_certificate_is_the_servers() {
    let world = World::new();
    let (archive, keys) = (good(), keys_of("files.invalid", 200));
    let (url, served) = serve_tls(&keys, vec![answer("200 OK", &archive)]);
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let (by, asked) = proxy(vec![None], port);
    let by = by.replace("//", "//user:p%40ss@");
    let route = Route { proxies: proxies(&[("HTTPS_PROXY", &by)]), ..keys.route() };
    fetched_by(&route, &world, "https://files.invalid/a.tar", &archive).unwrap();
    assert_eq!(served.join().unwrap(), ["GET /a.tar HTTP/1.1"]);
    let connect = "CONNECT files.invalid:443 HTTP/1.1 Proxy-Authorization: Basic dXNlcjpwQHNz";
    assert_eq!(asked.join().unwrap(), [connect]);
    // One of another name behind it is not believed.
    let (url, served) = serve_tls(&keys, vec![answer("200 OK", &archive)]);
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let (by, asked) = proxy(vec![None], port);
    let route = Route { proxies: proxies(&[("HTTPS_PROXY", &by)]), ..keys.route() };
    world.clear();
    let error = fetched_by(&route, &world, "https://else.invalid/a.tar", &archive).unwrap_err();
    assert!(in_full(&error).contains("not valid for name"), "{error:?}");
    assert!(served.join().unwrap().is_empty());
    asked.join().unwrap();
}

#[test]
fn a_proxy_is_asked_for_the_whole_http_address_and_not_for_what_no_proxy_names() {
    let world = World::new();
    let archive = good();
    let moved = answer("302 Found\r\nLocation: /b.tar", b"");
    let (by, asked) = proxy(vec![Some(moved), Some(answer("200 OK", &archive))], 0);
    let by = by.replace("//", "//user:p%40ss@");
    let variables = [("HTTP_PROXY", by.as_str()), ("NO_PROXY", "127.0.0.0/8")];
    let route = Route { proxies: proxies(&variables), ..Route::default() };
    fetched_by(&route, &world, "http://files.invalid:8080/a.tar?k=v", &archive).unwrap();
    let authorization = "proxy-authorization: Basic dXNlcjpwQHNz";
    let expected = ["a.tar?k=v", "b.tar"]
        .map(|path| format!("GET http://files.invalid:8080/{path} HTTP/1.1 {authorization}"));
    assert_eq!(asked.join().unwrap(), expected);
    world.clear();
    let (url, served) = serve(vec![answer("200 OK", &archive)]);
    fetched_by(&route, &world, &url, &archive).unwrap();
    assert_eq!(served.join().unwrap(), ["GET / HTTP/1.1"]);
}

#[test]
fn a_proxy_that_does_not_is_named_without_its_password() {
    let world = World::new();
    let (by, asked) = proxy(vec![Some(answer("403 Forbidden", b""))], 0);
    let with_password = by.replace("//", "//user:secret@");
    let at = by.trim_start_matches("http://");
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (proxy, why) in [
        (with_password.clone(), format!("through the proxy {at}: ")),
        (format!("http://user:secret@{closed}"), format!("through the proxy {closed}: ")),
    ] {
        let route = Route { proxies: proxies(&[("HTTPS_PROXY", &proxy)]), ..Route::default() };
        let error = fetched_by(&route, &world, "https://files.invalid/", b"").unwrap_err();
        assert_eq!(error.code(), 5, "{error:?}");
        let error = in_full(&error);
        assert!(error.contains(&why) && !error.contains("secret"), "{error}");
    }
    asked.join().unwrap();
}

#[test]
fn where_public_addresses_alone_are_asked_a_proxy_is_asked_for_named_hosts_alone() {
    let world = World::new();
    let archive = good();
    let of = |by: &str, hosts: &[&str]| Route {
        proxies: proxies(&[("HTTP_PROXY", by), ("HTTPS_PROXY", by), ("NO_PROXY", "127.0.0.0/8")]),
        reach: Reach {
            public_only: true,
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            ..Reach::default()
        },
        ..Route::default()
    };
    // Nothing listens there: whoever connected would say so.
    let closed = "http://127.0.0.1:1";
    for host in ["files.invalid", "10.0.0.1", "1.1.1.1", "[::1]", "metadata.named.invalid"] {
        for scheme in ["http", "https"] {
            let (route, url) = (of(closed, &["named.invalid"]), format!("{scheme}://{host}/x"));
            let error = fetched_by(&route, &world, &url, b"").unwrap_err();
            assert_eq!(error.code(), 2, "{error:?}");
            assert!(error.to_string().contains("populator.allowedArchiveHosts"), "{error}");
        }
    }
    // What needs no proxy is looked at by its address.
    let error = fetched_by(&of(closed, &["127.0.0.1"]), &world, "http://127.0.0.1:1/", b"");
    assert!(error.unwrap_err().to_string().contains("does not resolve to a public address"));
    // A host that is named leads on to one that is not.
    let moved = answer("302 Found\r\nLocation: http://10.0.0.1/b.tar", b"");
    let (by, asked) = proxy(vec![Some(moved), Some(answer("200 OK", &archive))], 0);
    let route = of(&by, &["*.named.invalid"]);
    let error = fetched_by(&route, &world, "http://a.named.invalid/a.tar", &archive).unwrap_err();
    assert!(
        error.to_string().starts_with("http://10.0.0.1/b.tar is fetched through a proxy"),
        "{error}"
    );
    fetched_by(&route, &world, "http://b.named.invalid/a.tar", &archive).unwrap();
    assert_eq!(asked.join().unwrap().len(), 2);
}

#[test]
fn who_says_nothing_is_not_waited_for_without_end() {
    let world = World::new();
    let (archive, keys) = (good(), keys());
    let patience = Duration::from_millis(50);
    let stalls = answer("200 OK", &archive)[..1_000_000].to_vec();
    for said in [Vec::new(), stalls] {
        // It keeps each connection until the end.
        let (done, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let config = keys.config.clone();
        let serves = thread::spawn(move || {
            for is_tls in [false, true] {
                let (mut plain, _) = listener.accept().unwrap();
                if is_tls {
                    let connection = ServerConnection::new(config.clone()).unwrap();
                    let mut stream = StreamOwned::new(connection, plain);
                    head(&mut stream).unwrap();
                    let _ = stream.write_all(&said);
                    let _ = held.lock().unwrap().recv();
                } else {
                    head(&mut plain).unwrap();
                    let _ = plain.write_all(&said);
                    let _ = held.lock().unwrap().recv();
                }
            }
        });
        for scheme in ["http", "https"] {
            let route = Route { patience, ..keys.route() };
            let url = format!("{scheme}://localhost:{port}/a.tar");
            let error = fetched_by(&route, &world, &url, &archive).unwrap_err();
            assert_eq!(error.code(), 5, "{error:?}");
            assert!(in_full(&error).contains("timed out"), "{error:?}");
            assert!(is_as_it_was(&world));
            done.send(()).unwrap();
        }
        serves.join().unwrap();
    }
}
