//! What a connection adds to a copy.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use pliant_copy::copy::{
    CopyError, CopySummary, Dir, Hand, Pass, ProgressReporter, Sockets, copy_disk, copy_from,
};
use pliant_copy::remote::{Remote, RemoteDisk, RemoteTree, Served, TransferKeys};

use crate::sender::{Sender, credentials, keys};
use crate::world::World;

fn copy_of(remote: Remote, world: &World) -> Result<CopySummary, CopyError> {
    let asked = (Pass::Final, Sockets::Skip);
    let (hand, tell) = (Hand::default(), &mut ProgressReporter::silent());
    copy_from(&RemoteTree::of(remote), &world.target(), asked, &hand, tell)
}

fn sender_of(world: &World) -> Sender {
    Sender::of(Served::Tree(Dir::open(&world.source()).unwrap()))
}

fn remote(address: &str, keys: &TransferKeys, pair: &(String, String)) -> Remote {
    Remote::at(address, &credentials(keys, pair), Arc::default()).unwrap()
}

#[test]
fn who_has_not_the_key_gets_nothing() {
    let world = World::new();
    fs::write(world.source().join("f"), "secret").unwrap();
    let sender = sender_of(&world);
    let address = sender.address().to_string();
    let others = TransferKeys::make(UNIX_EPOCH.elapsed().unwrap()).unwrap();
    for (keys, pair) in [(&others, &others.target), (keys(), &keys().source)] {
        let error = copy_of(remote(&address, keys, pair), &world).unwrap_err();
        assert_eq!(error.code(), 5, "{error}");
        assert!(error.to_string().starts_with("receiving from 127.0.0.1:"), "{error}");
    }
    let mut plain = TcpStream::connect(sender.address()).unwrap();
    plain.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = plain.read_to_end(&mut said); // It may be reset.
    assert!(!String::from_utf8_lossy(&said).contains("secret"));
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0);
    copy_of(sender.remote(), &world).unwrap();
    world.assert_same();
}

#[test]
fn connections_that_show_no_key_keep_the_right_one_out_of_nothing() {
    let world = World::new();
    crate::world::Maker::of(7).fill(&world.source(), 20);
    let sender = sender_of(&world);
    // They are accepted in their order, before those of the copy.
    let idle: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(sender.address()).unwrap()).collect();
    copy_of(sender.remote(), &world).unwrap();
    world.assert_same();
    drop(idle);
}

#[test]
fn nobody_there_is_told_with_the_address() {
    let world = World::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let error = copy_of(remote(&free, keys(), &keys().target), &world).unwrap_err();
    assert_eq!(error.to_string(), format!("receiving from {free}"));
    assert_eq!(error.code(), 5);
}

#[test]
fn a_tree_is_no_device_and_a_device_no_tree() {
    let world = World::new();
    let disk = world.target().join("disk");
    fs::write(&disk, vec![0; 4096]).unwrap();
    let remote = RemoteDisk(sender_of(&world).remote());
    let sender = sender_of(&world);
    drop(remote);
    let (hand, tell) = (Hand::default(), &mut ProgressReporter::silent());
    let asked = RemoteDisk(sender.remote());
    let error = copy_disk(&asked, &disk, Pass::Final, &hand, tell).unwrap_err();
    assert!(
        error.to_string().contains("the source sends a tree, but the target expects a device"),
        "{error}"
    );
    let sender = Sender::of(Served::Device(disk.clone()));
    fs::remove_file(&disk).unwrap();
    let error = copy_of(sender.remote(), &world).unwrap_err();
    assert!(
        error.to_string().contains("the source sends a device, but the target expects a tree"),
        "{error}"
    );
    assert_eq!(error.code(), 2);
}

/// Whoever goes between, after so many bytes from the source: the copy fails, and the next one carries on.
#[test]
fn a_connection_that_breaks_fails_the_copy_and_the_next_carries_on() {
    let world = World::new();
    crate::world::Maker::of(3).fill(&world.source(), 60);
    let sender = sender_of(&world);
    let mut broke = 0;
    for allowed in (0..400_000_usize).step_by(9_973) {
        let between = breaking(sender.address().to_string(), allowed);
        match copy_of(remote(&between, keys(), &keys().target), &world) {
            Ok(_) => world.assert_same(),
            Err(error) => {
                assert_eq!(error.code(), 5, "{error}");
                broke += 1;
            }
        }
        world.mark_target();
    }
    assert!(broke > 20, "{broke}");
    copy_of(sender.remote(), &world).unwrap();
    world.assert_same();
}

/// Passes connections on, each until so many bytes came back.
fn breaking(to: String, allowed: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let Ok(near) = near else { return };
            let Ok(far) = TcpStream::connect(&to) else { return };
            let (mut up, mut down) = (near.try_clone().unwrap(), near);
            let (mut to_far, mut from_far) = (far.try_clone().unwrap(), far);
            std::thread::spawn(move || std::io::copy(&mut up, &mut to_far));
            std::thread::spawn(move || {
                let limit = u64::try_from(allowed).unwrap_or(u64::MAX);
                let _ = std::io::copy(&mut (&mut from_far).take(limit), &mut down);
                let _ = down.shutdown(std::net::Shutdown::Both);
                let _ = from_far.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}
