//! Which replica runs the loops.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use pliant::cluster::LeaseCandidate;
use pliant::testing::{FakeApi, fake_api};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

const LEASE: &str = "pliant-system/pliant-operator";

/// After this long another replica has surely begun.
const TAKEN_OVER: Duration = Duration::from_secs(20);

/// Who leads, and whether ever two did.
#[derive(Default)]
struct Stage {
    now: Mutex<Vec<&'static str>>,
    most: AtomicUsize,
}

impl Stage {
    fn leads(&self) -> Vec<&'static str> {
        self.now.lock().unwrap().clone()
    }
}

/// Leads for as long as it is here.
struct Leading(Arc<Stage>, &'static str);

impl Leading {
    fn begin(stage: &Arc<Stage>, who: &'static str) -> Leading {
        let mut now = stage.now.lock().unwrap();
        now.push(who);
        stage.most.fetch_max(now.len(), Ordering::Relaxed);
        Leading(stage.clone(), who)
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.now.lock().unwrap().retain(|who| *who != self.1);
    }
}

/// A replica: aborted, it dies; stopped, it ends.
struct Replica {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

fn replica(api: &FakeApi, stage: &Arc<Stage>, who: &'static str) -> Replica {
    let candidate = LeaseCandidate::new(&api.client(), "pliant-system", "pliant-operator", who);
    let (stop, stage) = (CancellationToken::new(), stage.clone());
    let until = stop.clone();
    let task = tokio::spawn(async move {
        let work = |lost: CancellationToken| {
            let leading = Leading::begin(&stage, who);
            async move {
                lost.cancelled().await;
                drop(leading);
            }
        };
        candidate.lead(&until, work).await;
    });
    Replica { task, stop }
}

/// Two replicas, of which the first leads.
async fn two(api: &FakeApi, stage: &Arc<Stage>) -> [Replica; 2] {
    let first = replica(api, stage, "first");
    sleep(Duration::from_secs(1)).await;
    let second = replica(api, stage, "second");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(stage.leads(), ["first"]);
    [first, second]
}

fn stage() -> (FakeApi, Arc<Stage>) {
    (fake_api(), Arc::default())
}

#[tokio::test(start_paused = true)]
async fn one_of_two_leads_and_the_other_one_after_its_death() {
    let (api, stage) = stage();
    let [first, _second] = two(&api, &stage).await;
    first.task.abort();
    sleep(Duration::from_secs(9)).await;
    assert_eq!(stage.leads(), [""; 0], "it may still be at work");
    sleep(TAKEN_OVER).await;
    assert_eq!(stage.leads(), ["second"]);
    assert_eq!(stage.most.load(Ordering::Relaxed), 1);
    let lease: Lease = api.get(LEASE).unwrap();
    assert_eq!(lease.spec.unwrap().lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn one_that_ends_lets_the_other_one_lead_at_once() {
    let (api, stage) = stage();
    let [first, _second] = two(&api, &stage).await;
    first.stop.cancel();
    first.task.await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.leads(), ["second"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_the_api_server_does_not_answer_stops_before_another_can_begin() {
    for down in [FakeApi::go_down as fn(&FakeApi), |api| api.refuse_all(503)] {
        let (api, stage) = stage();
        let [_first, _second] = two(&api, &stage).await;
        down(&api);
        sleep(Duration::from_secs(11)).await;
        assert_eq!(stage.leads(), [""; 0], "another one may reach it");
        sleep(Duration::from_secs(300)).await;
        api.come_back();
        sleep(TAKEN_OVER).await;
        assert_eq!(stage.leads().len(), 1);
        assert_eq!(stage.most.load(Ordering::Relaxed), 1);
    }
}

/// Of an outage that is shorter than a Lease nobody who leads knows.
#[tokio::test(start_paused = true)]
async fn a_short_outage_changes_nothing() {
    let (api, stage) = stage();
    let [_first, _second] = two(&api, &stage).await;
    for _ in 0..10 {
        api.refuse_all(503);
        sleep(Duration::from_secs(4)).await;
        api.come_back();
        sleep(Duration::from_secs(6)).await;
        assert_eq!(stage.leads(), ["first"]);
    }
}

/// The clock of the node of a replica that died was years ahead.
#[tokio::test(start_paused = true)]
async fn no_clock_of_another_node_keeps_the_lease() {
    let (api, stage) = stage();
    let [first, _second] = two(&api, &stage).await;
    first.task.abort();
    let mut lease: Lease = api.get(LEASE).unwrap();
    let late = Timestamp::now() + SignedDuration::from_hours(10_000);
    let spec = lease.spec.as_mut().unwrap();
    (spec.renew_time, spec.lease_duration_seconds) = (Some(MicroTime(late)), Some(i32::MAX));
    api.put(&lease);
    sleep(TAKEN_OVER).await;
    assert_eq!(stage.leads(), ["second"]);
}

/// Who deletes it lets another one begin at once; the one that had it stops when it renews.
#[tokio::test(start_paused = true)]
async fn a_lease_that_a_person_deletes_or_empties_is_had_by_one_again() {
    let (api, stage) = stage();
    let [_first, _second] = two(&api, &stage).await;
    api.delete::<Lease>(LEASE);
    sleep(Duration::from_secs(6)).await;
    assert_eq!(stage.leads(), ["second"]);
    let mut lease: Lease = api.get(LEASE).unwrap();
    lease.spec = None;
    api.put(&lease);
    sleep(TAKEN_OVER).await;
    assert_eq!(stage.leads(), ["first"]);
}

/// What is listed once more has not changed.
#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_again_and_again_does_not_put_it_off() {
    let (api, stage) = stage();
    let [first, _second] = two(&api, &stage).await;
    first.task.abort();
    for _ in 0..4 {
        sleep(Duration::from_secs(5)).await;
        api.compact();
        api.cut_watches();
    }
    assert_eq!(stage.leads(), ["second"]);
}

/// A watch that tells nothing any more makes no one leader of what another one holds.
#[tokio::test(start_paused = true)]
async fn a_watch_that_is_silent_makes_no_second_leader() {
    let (api, stage) = stage();
    let [_first, _second] = two(&api, &stage).await;
    api.hold_events();
    let before = api.writes().len();
    sleep(Duration::from_secs(150)).await;
    assert_eq!((stage.leads(), stage.most.load(Ordering::Relaxed)), (vec!["first"], 1));
    let tried = api.writes()[before..].iter().filter(|write| write.starts_with("PUT")).count();
    assert!((1..=10).contains(&tried), "{tried} tries");
}

/// What holds it asks three times in 15 s, and who waits not at all.
#[tokio::test(start_paused = true)]
async fn who_waits_asks_for_nothing() {
    let (api, stage) = stage();
    let [_first, _second] = two(&api, &stage).await;
    let (before, began) = (api.calls(), Instant::now());
    sleep(Duration::from_secs(150)).await;
    let calls = u64::try_from(api.calls() - before).unwrap();
    assert!(calls <= began.elapsed().as_secs() / 5 + 2, "{calls} calls");
}

/// An answer that was lost is no other holder.
#[tokio::test(start_paused = true)]
async fn whose_answer_was_lost_leads() {
    for lost in pliant::testing::Lost::BOTH {
        let (api, stage) = stage();
        api.fail_at(1, lost);
        let _first = replica(&api, &stage, "first");
        sleep(Duration::from_secs(5)).await;
        assert_eq!(stage.leads(), ["first"], "{lost:?}");
    }
}
