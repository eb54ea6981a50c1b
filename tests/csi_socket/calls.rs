//! How calls run: alone, to the end, logged, caught.

use pliant::csi::pb;
use tonic::Code;

use crate::driver::{Driver, code, create, expand, get};
use crate::log::{lines_of, log};

#[tokio::test]
async fn a_volume_is_worked_on_once_at_a_time_and_to_the_end() {
    let mut driver = Driver::start().await;
    let mut client = driver.controller.clone();
    let call = tokio::spawn(async move { client.create_volume(create("slow")).await });
    driver.behind.begun.notified().await;
    let second = driver.controller.create_volume(create("slow")).await;
    assert_eq!(code(second), Code::Aborted);
    call.abort(); // The caller leaves.
    assert!(call.await.unwrap_err().is_cancelled());
    driver.behind.let_go.notify_one();
    // Waits for the work on its volume, then finds it done.
    let grown = driver.controller.controller_expand_volume(expand("slow", 7 << 30)).await;
    assert_eq!(grown.unwrap().into_inner().capacity_bytes, 7 << 30);
}

#[tokio::test]
async fn a_panic_is_an_answer() {
    let mut driver = Driver::start().await;
    let read = driver.controller.controller_get_volume(get("broken")).await;
    assert_eq!(code(read), Code::Internal);
    let changed = driver.controller.controller_expand_volume(expand("broken", 1)).await;
    assert_eq!(code(changed), Code::Internal);
    assert_eq!(code(driver.identity.probe(pb::ProbeRequest {}).await), Code::Ok);
}

#[tokio::test]
async fn calls_under_way_are_answered_at_the_end() {
    let driver = Driver::start().await;
    let mut client = driver.controller.clone();
    let call = tokio::spawn(async move { client.create_volume(create("slow")).await });
    driver.behind.begun.notified().await;
    driver.stop.send(()).unwrap();
    while driver.socket.exists() {
        tokio::task::yield_now().await;
    }
    driver.behind.let_go.notify_one();
    assert_eq!(code(call.await.unwrap()), Code::Ok);
    drop((driver.identity, driver.controller, driver.node));
    driver.served.await.unwrap().unwrap();
}

#[tokio::test]
async fn each_call_is_one_line_and_one_observation() {
    log();
    let mut driver = Driver::start().await;
    assert_eq!(code(driver.controller.create_volume(create("logged")).await), Code::Ok);
    let mut bad = create("logged badly");
    bad.volume_capabilities.clear();
    assert_eq!(code(driver.controller.create_volume(bad).await), Code::InvalidArgument);
    let unserved = pb::ControllerModifyVolumeRequest::default();
    assert_eq!(
        code(driver.controller.controller_modify_volume(unserved).await),
        Code::Unimplemented
    );

    for (volume, level, code, error, request) in [
        ("logged", "INFO", "OK", None, 1),
        ("logged badly", "WARN", "INVALID_ARGUMENT", Some("volume_capabilities: "), 2),
    ] {
        let lines = lines_of(volume);
        assert_eq!(lines.len(), 1, "{volume}");
        assert_eq!(lines[0]["level"], level);
        assert_eq!(lines[0]["fields"]["code"], code);
        let told = lines[0]["fields"]["error"].as_str();
        assert_eq!(told.is_some(), error.is_some());
        assert!(told.unwrap_or_default().starts_with(error.unwrap_or_default()), "{told:?}");
        assert!(lines[0]["fields"]["ms"].is_number());
        assert_eq!(lines[0]["span"]["method"], "Controller/CreateVolume");
        assert_eq!(lines[0]["span"]["request"], request);
    }
    let seen = driver.seen.0.lock().unwrap().clone();
    let expected = [
        ("Controller/CreateVolume", "OK"),
        ("Controller/CreateVolume", "INVALID_ARGUMENT"),
        ("unserved", "UNIMPLEMENTED"),
    ];
    assert_eq!(seen, expected.map(|(method, code)| (method.to_owned(), code)));
}
