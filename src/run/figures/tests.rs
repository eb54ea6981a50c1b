use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::metrics::{self, Metrics};
use crate::node::{GroupSource, NodeSettings, PoolPlan};
use crate::testing::FakeHost;
use crate::volume::{
    Access, Class, Growth, Mode, NewVolume, NodeVolumes, RequestedSize, Stage, Volumes,
};

fn block(name: &str, size: Bytes) -> NewVolume {
    NewVolume {
        name: name.to_owned(),
        size: RequestedSize { at_least: size, at_most: None },
        mode: Mode::Block,
        class: Class::default(),
        nodes: Vec::new(),
        source: None,
    }
}

async fn scrape(node: &Arc<Node>, host: &FakeHost, metrics: &Metrics) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let figures = Arc::new(NodeFigures::new(node.clone(), Arc::new(host.clone())));
    let stop = CancellationToken::new();
    let server = tokio::spawn(metrics::serve(listener, metrics.clone(), figures, stop.clone()));
    let request = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    stop.cancel();
    server.await.unwrap().unwrap();
    answer
}

#[tokio::test]
async fn a_scrape_tells_what_was_done() {
    let host = FakeHost::new();
    let disk = host.add_disk(Bytes::gib(1));
    host.add_group("vg0", &[disk]);
    let plan =
        PoolPlan::new("fast".parse().unwrap(), vec![GroupSource::Existing("vg0".to_owned())]);
    let node =
        Node::start(Arc::new(host.clone()), NodeSettings::new("alpha"), vec![plan]).await.unwrap();
    let metrics = Metrics::default();

    let asked = Bytes::new(Bytes::mib(8).get() - 1);
    let id = node.ensure(&block("a", asked)).await.unwrap().id;
    let grow = |size| Growth { size: RequestedSize { at_least: size, at_most: None }, block: None };
    let staging = "/var/lib/kubelet/volume".into();
    let stage = Stage { id: id.clone(), staging, access: Access::Block, read_only: false };
    node.stage(&stage).await.unwrap();
    node.grow(&id, grow(Bytes::mib(12))).await.unwrap();
    node.grow(&id, grow(Bytes::gib(2))).await.unwrap_err();

    let lines = [
        format!(r#"pliant_volume_size_bytes{{volume="{id}",name="a",pool="fast"}} 12582912.0"#),
        format!(r#"pliant_volume_requested_bytes{{volume="{id}"}} 8388607.0"#),
        r#"pliant_expansions_total{result="full"} 1"#.to_owned(),
        r#"pliant_expansions_total{result="error"} 1"#.to_owned(),
        "pliant_wiped_bytes_total 12582912".to_owned(),
        // The volume, and the extents that were wiped before they joined it.
        r#"pliant_lvm_command_duration_seconds_count{command="lvcreate"} 2"#.to_owned(),
        r#"pliant_lvm_command_duration_seconds_count{command="lvextend"} 1"#.to_owned(),
        r#"pliant_volume_group_free_bytes{volume_group="vg0",pool="fast"} 1040187392.0"#.to_owned(),
        r#"pliant_disk_state{disk="/dev/fake0",state="used"} 1.0"#.to_owned(),
        r#"pliant_pool_up{pool="fast"} 1.0"#.to_owned(),
    ];
    let told = scrape(&node, &host, &metrics).await;
    for line in lines {
        assert!(told.lines().any(|told| told == line), "{line} is not in\n{told}");
    }
    let longest = r#"pliant_lvm_command_duration_seconds_bucket{le="120.0",command="lvcreate"} 2"#;
    assert!(told.contains(longest), "{told}");

    let spent = host.effects().len();
    scrape(&node, &host, &metrics).await;
    assert_eq!(host.effects().len(), spent, "a scrape changes nothing");
}
