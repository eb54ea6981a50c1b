//! A registry of images that wants a password: it has the driver's image, as a file of `e2e/cluster/images`, and
//! serves what a kubelet asks for (OCI distribution specification 1.1, pull alone).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::net::TcpStream;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::fetches::{HERE, head_of, listen};

/// Where containerd is told to ask it without TLS: see `e2e/cluster/up`.
const PORT: u16 = 5000;
const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
const IMAGE: &str = "target/cluster/images/pliant.tar";
const USER_AND_PASSWORD: &str = "kubelet:of the test";

/// The driver's image there.
pub fn image() -> String {
    format!("{HERE}:{PORT}/pliant")
}

/// What a Secret of type `kubernetes.io/dockerconfigjson` says, so that a kubelet may pull.
pub fn credentials() -> String {
    let (user, password) = USER_AND_PASSWORD.split_once(':').expect("both");
    let auths = json!({ format!("{HERE}:{PORT}"): {"username": user, "password": password} });
    json!({ "auths": auths }).to_string()
}

/// Serve, for as long as the test runs.
pub fn serve() {
    let registry = Registry::open().expect("made by e2e/cluster/images");
    listen(PORT, move |stream| registry.answer(stream));
}

/// A layer of the image, in the file.
struct Blob {
    offset: u64,
    size: u64,
}

/// The image, by what is asked for: layers are read from the file.
struct Registry {
    manifest: Vec<u8>,
    config: Vec<u8>,
    layers: BTreeMap<String, Blob>,
    authorization: String,
}

impl Registry {
    /// Read what the file has: a configuration and layers, each named by its digest.
    fn open() -> io::Result<Registry> {
        let (mut layers, mut list, mut config) = (BTreeMap::new(), Value::Null, Value::Null);
        let mut archive = tar::Archive::new(BufReader::new(File::open(IMAGE)?));
        for entry in archive.entries_with_seek()? {
            let mut entry = entry?;
            let path = entry.path()?.into_owned();
            let name = path.display().to_string();
            if name == "manifest.json" {
                list = serde_json::from_reader(&mut entry)?;
            } else if path.extension().is_some_and(|end| end == "json") {
                config = serde_json::from_reader(&mut entry)?;
            } else if entry.header().entry_type().is_file() {
                let blob = Blob { offset: entry.raw_file_position(), size: entry.size() };
                layers.insert(digest(&name), blob);
            }
        }
        // Another image than the one that the nodes have had from the start: what a kubelet knows of one image, it
        // knows of each of its names.
        config["author"] = json!("a registry that wants a password");
        let config = serde_json::to_vec(&config)?;
        let layer = |name: &Value| {
            let digest = digest(name.as_str().unwrap_or_default());
            json!({"mediaType": LAYER, "size": layers[&digest].size, "digest": digest})
        };
        let all = list[0]["Layers"].as_array().into_iter().flatten();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "size": config.len(), "digest": digest_of(&config)},
            "layers": all.map(layer).collect::<Vec<_>>(),
        });
        let manifest = serde_json::to_vec(&manifest)?;
        let authorization = format!("Basic {}", STANDARD.encode(USER_AND_PASSWORD));
        Ok(Registry { manifest, config, layers, authorization })
    }

    /// Answer one request: who may not pull is told how to say who it is.
    fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let head = head_of(&mut stream)?;
        let mut request = head.lines().next().unwrap_or_default().split(' ');
        let (method, path) =
            (request.next().unwrap_or_default(), request.next().unwrap_or_default());
        let is_known = head.lines().any(|line| {
            let field = line.split_once(": ");
            field.is_some_and(|(name, value)| {
                name.eq_ignore_ascii_case("authorization") && value == self.authorization
            })
        });
        let (what, of) = path.rsplit_once('/').unwrap_or_default();
        let is_blob = what == "/v2/pliant/blobs";
        let layer = self.layers.get(of).filter(|_| is_blob);
        let small: &[u8] = match what {
            "/v2/pliant/manifests" => &self.manifest,
            _ if is_blob && of == digest_of(&self.config) => &self.config,
            _ => &[],
        };
        let size = layer.map_or(small.len() as u64, |layer| layer.size);
        let (status, size) = match size {
            _ if !is_known => ("401 Unauthorized", 0),
            0 if path != "/v2/" => ("404 Not Found", 0),
            size => ("200 OK", size),
        };
        let kind = if is_blob { "application/octet-stream" } else { MANIFEST };
        let digest = if is_blob { of.to_owned() } else { digest_of(&self.manifest) };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\nDocker-Content-Digest: {digest}\r\n\
             WWW-Authenticate: Basic realm=\"pliant\"\r\nConnection: close\r\n\r\n"
        )?;
        match layer {
            _ if method != "GET" || size == 0 => Ok(()),
            Some(layer) => {
                let mut file = File::open(IMAGE)?;
                file.seek(SeekFrom::Start(layer.offset))?;
                io::copy(&mut file.take(layer.size), &mut stream).map(drop)
            }
            None => stream.write_all(small),
        }
    }
}

fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// A file of the archive is named by the digest of what it holds.
fn digest(name: &str) -> String {
    format!("sha256:{}", name.split('.').next().unwrap_or_default())
}
