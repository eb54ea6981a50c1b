//! The commands as an operator runs them.

#![allow(clippy::disallowed_methods)] // No room of the driver: it starts the binary itself.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use assert_cmd::cargo::cargo_bin;
use pliant::copy::Digest;
use serde_json::Value;

use crate::sender::keys;
use crate::servers::{answer, keys_of, proxy, serve, serve_tls};
use crate::tarballs::good;
use crate::world::{Maker, World, is_root, not_tried};

/// Exit code, lines of standard output.
fn pliant(args: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = Command::new(cargo_bin("pliant")).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code(), lines)
}

#[test]
fn the_end_is_the_last_line_and_the_content_of_the_result() {
    let world = World::new();
    fs::write(world.source().join("f"), vec![1; 3 << 20]).unwrap();
    let (source, target) = (world.source(), world.target());
    let result = world.outside().join("result");
    let args = [
        "copy",
        source.to_str().unwrap(),
        target.to_str().unwrap(),
        "--max-rate=2Mi",
        "--result",
        result.to_str().unwrap(),
    ];
    let (code, lines) = pliant(&args);
    let (end, told) = lines.split_last().unwrap();
    assert_eq!(code, Some(0), "{lines:?}");
    assert_eq!(
        (&end["outcome"], &end["bytes"], &end["files"]),
        (&"done".into(), &(3 << 20).into(), &1.into())
    );
    assert!(end["digest"].as_str().unwrap().starts_with("sha256:"), "{end}");
    assert!(end["seconds"].as_f64().unwrap() > 1.0, "{end}");
    assert!(!told.is_empty());
    assert_eq!(told[0]["bytesTotal"], 3 << 20);
    let written: Value = serde_json::from_str(&fs::read_to_string(&result).unwrap()).unwrap();
    assert_eq!(written, *end);
}

#[test]
fn each_reason_has_its_code() {
    let world = World::new();
    let (source, target) = (world.source(), world.target());
    let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
    let (code, lines) = pliant(&["copy", source, source]);
    assert_eq!((code, &lines[0]["reason"]), (Some(2), &"refused".into()));
    let (code, lines) = pliant(&["copy", source, "/nonexistent/x"]);
    assert_eq!(
        (code, &lines[0]["outcome"], &lines[0]["reason"]),
        (Some(5), &"failed".into(), &"failed".into())
    );
    assert_eq!(
        lines[0]["message"],
        "opening /nonexistent/x: No such file or directory (os error 2)"
    );
    let (code, lines) = pliant(&["copy", source, target, "--pre-copy", "--final"]);
    assert_eq!((code, lines), (Some(2), Vec::new()));
}

#[test]
fn an_attribute_that_a_pod_may_not_set_is_refused_by_name_before_anything_is_written() {
    let world = World::new();
    if !is_root() {
        return;
    }
    let (dir, first) = (world.source().join("d"), world.source().join("a"));
    fs::create_dir(&dir).unwrap();
    fs::write(&first, "content").unwrap();
    let set = |path: &std::path::Path, name: &str| {
        rustix::fs::setxattr(path, name, b"x", rustix::fs::XattrFlags::empty())
    };
    if set(&dir, "security.NTACL").is_err() {
        return not_tried("this process may not set attributes of security modules itself");
    }
    let (source, target) = (world.source(), world.target());
    let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
    for round in ["--pre-copy", "--final"] {
        // As in a pod that copies.
        let output = Command::new("setpriv")
            .args(["--bounding-set", "-sys_admin"])
            .arg(cargo_bin("pliant"))
            .args(["copy", source, target, round])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((output.status.code(), &end["reason"]), (Some(2), &"refused".into()), "{end}");
        let message = end["message"].as_str().unwrap();
        assert!(message.starts_with("d has the attribute security.NTACL, which only"), "{end}");
        assert_eq!(fs::read_dir(target).unwrap().count(), 0);
    }
    // Who may set it carries it.
    let (code, lines) = pliant(&["copy", source, target]);
    assert_eq!(code, Some(0), "{lines:?}");
    world.assert_same();
}

#[test]
fn holes_are_not_told_as_work() {
    let world = World::new();
    let file = fs::File::create(world.source().join("f")).unwrap();
    file.set_len(40 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"0123456789", 20 << 30).unwrap();
    let (source, target) = (world.source(), world.target());
    let result = world.outside().join("result");
    // So slow that it tells how far it is.
    let args = ["copy", source.to_str().unwrap(), target.to_str().unwrap(), "--max-rate=32Ki"];
    let (code, lines) = pliant(&[&args[..], &["--result", result.to_str().unwrap()]].concat());
    let (_, told) = lines.split_last().unwrap();
    assert_eq!(code, Some(0), "{lines:?}");
    for line in told {
        assert!(line["bytesTotal"].as_u64().unwrap() < 1 << 20, "{line}");
    }
}

/// What a pod does, by the variables that it gets.
fn run(url: &str, archive: &[u8], world: &World, variables: &[(&str, &str)]) -> Value {
    let target = world.target();
    let output = Command::new(cargo_bin("pliant"))
        .args(["unpack", "--url", url, "--sha256", &Digest::of(archive).to_string(), "--no-owners"])
        .arg(&target)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let Some(line) = text.lines().last() else {
        panic!("{}", String::from_utf8_lossy(&output.stderr));
    };
    serde_json::from_str(line).unwrap()
}

#[test]
fn the_command_takes_authorities_and_proxies_from_its_variables() {
    let world = World::new();
    let (archive, keys) = (good(), keys_of("files.invalid", 200));
    // For http no authority is needed.
    let none = ("SSL_CERT_FILE", "/nonexistent");
    let (url, served) = serve(vec![answer("200 OK", &archive)]);
    assert_eq!(run(&url, &archive, &world, &[none])["outcome"], "done");
    served.join().unwrap();
    world.clear();
    let told = run("https://localhost:1/", &archive, &world, &[none]);
    let message = told["message"].as_str().unwrap();
    assert!(
        message.contains("no certificate authority is configured; set the PEM certificate"),
        "{message}"
    );
    // By the proxy, and believed by the bundle, without any of the machine.
    let (url, served) = serve_tls(&keys, vec![answer("200 OK", &archive)]);
    let port = url.rsplit(':').next().unwrap().parse().unwrap();
    let (by, asked) = proxy(vec![None], port);
    let variables =
        [none, ("PLIANT_CA_BUNDLE", &keys.authority), ("https_proxy", &by), ("NO_PROXY", ".svc")];
    let told = run("https://files.invalid/a.tar", &archive, &world, &variables);
    assert_eq!(told["outcome"], "done", "{told}");
    assert_eq!(asked.join().unwrap(), ["CONNECT files.invalid:443 HTTP/1.1"]);
    served.join().unwrap();
}

fn write_keys(dir: &Path, pair: &(String, String)) {
    fs::create_dir(dir).unwrap();
    for (name, pem) in [("ca.crt", &keys().ca), ("tls.crt", &pair.0), ("tls.key", &pair.1)] {
        fs::write(dir.join(name), pem).unwrap();
    }
}

/// `pliant send`, and the address that it told.
fn start(args: &[&str]) -> (Child, String) {
    let mut child = Command::new(cargo_bin("pliant"))
        .arg("send")
        .args(args)
        .args(["--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut said, &mut line).unwrap();
    let address = line.trim().rsplit(' ').next().unwrap().to_owned();
    (child, address)
}

#[test]
fn two_commands_copy_from_machine_to_machine() {
    let world = World::new();
    Maker::of(5).fill(&world.source(), 30);
    let (ours, theirs) = (world.outside().join("ours"), world.outside().join("theirs"));
    write_keys(&ours, &keys().target);
    write_keys(&theirs, &keys().source);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let (mut child, address) = start(&[&text(&world.source()), "--cert-dir", &text(&theirs)]);
    let copy = |keys: &Path| {
        let output = Command::new(cargo_bin("pliant"))
            .args(["copy", &text(&world.target()), "--from", &address, "--cert-dir", &text(keys)])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let end: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        (output.status.code(), end)
    };
    let (code, end) = copy(&theirs);
    assert_eq!((code, &end["reason"]), (Some(5), &"failed".into()), "{end}");
    let (code, end) = copy(&ours);
    assert_eq!((code, &end["outcome"]), (Some(0), &"done".into()), "{end}");
    world.assert_same();
    // A signal ends it, and well.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
