//! A PostgreSQL that works is moved to a smaller volume, which then grows: each transaction that it has
//! acknowledged is there, and its own checks find nothing wrong.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::autoscaler::startup_probe;
use crate::claim::capacity;
use crate::figures::figures;
use crate::world::{World, run};

/// Makes the database with checksums on each page, or starts the one that is there. It is killed without
/// a word whenever its pod ends, so that what it finds then is what it had made durable.
pub const SERVER: &str = "\
    PATH=$PATH:/usr/lib/postgresql/15/bin; cd /data; \
    [ -e db ] || { rm -rf db.new; \
        initdb --pgdata db.new --username postgres --data-checksums --no-locale --encoding UTF8; mv db.new db; }; \
    exec postgres -D db -k /tmp -c listen_addresses= -c shared_buffers=16MB -c max_connections=20 \
        -c max_wal_size=64MB -c min_wal_size=32MB";

/// What every command in the pod begins with.
const CLIENT: &str = "PATH=$PATH:/usr/lib/postgresql/15/bin; export PGHOST=/tmp PGUSER=postgres; ";

/// Some transactions that move money between accounts: each row of their history is one that was done.
const TRANSACTIONS: &str = "pgbench --client 4 --transactions 100 --no-vacuum 2>&1";

/// What the history says, and each of the three sums that have to be the same.
const TOTALS: &str = "psql --quiet --tuples-only --no-align --field-separator ' ' --command \"select \
    (select count(*) from pgbench_history), (select sum(delta) from pgbench_history), \
    (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers), \
    (select sum(bbalance) from pgbench_branches)\"";

/// Every page of every table and index is read, and each index compared with its table.
const CHECK: &str = "pg_amcheck --all --install-missing --heapallindexed --parent-check 2>&1";

fn server() -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsUser": 999, "runAsGroup": 999, "fsGroup": 999,
                            "fsGroupChangePolicy": "OnRootMismatch"},
        "containers": [{
            "name": "app",
            "image": "pliant.test/postgresql:15",
            "command": ["sh", "-c", SERVER],
            "startupProbe": startup_probe(&["/usr/lib/postgresql/15/bin/pg_isready", "-h", "/tmp"]),
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }],
    })
}

/// The number that pgbench says it has seen committed.
fn acknowledged(told: &str) -> i64 {
    let number = |line: &str| -> Option<i64> {
        let (_, number) = line.split_once("transactions actually processed: ")?;
        number.split('/').next()?.parse().ok()
    };
    told.lines().find_map(number).unwrap_or_default()
}

impl World {
    async fn sql(&self, script: &str) -> String {
        self.exec_when_back("db-0", &format!("{CLIENT}{script}")).await
    }

    /// Transactions without a pause, until `over`: how many were acknowledged.
    async fn transactions(self, over: CancellationToken) -> i64 {
        let mut seen = 0;
        while !over.is_cancelled() {
            // The server goes away and comes back.
            let told = self.try_exec("db-0", &format!("{CLIENT}{TRANSACTIONS}")).await;
            seen += match told {
                Ok(told) => acknowledged(&told),
                Err(Some(failed)) => acknowledged(&String::from_utf8_lossy(&failed.stdout)),
                Err(None) => 0,
            };
        }
        seen
    }
}

#[test]
fn keeps_what_it_has_acknowledged_through_a_swap_and_a_growth() {
    run("postgresql", |world| async move {
        let class = world.class(json!({"pool": "fast", "csi.storage.k8s.io/fstype": "xfs"})).await;
        world.workload_of(server(), 1, json!([])).await;
        let hot = json!({"preCopy": true, "verification": "ChangedOnly", "retention": "1s"});
        world.autoscaler(&class, "700Mi", hot.clone()).await;
        world.settled("1/1").await;
        world.sql("pgbench --initialize --scale 4 --quiet 2>&1").await;

        let over = CancellationToken::new();
        let load = tokio::spawn(world.clone().transactions(over.clone()));
        world.autoscaler(&class, "448Mi", hot.clone()).await;
        let status = world.settled("1/1").await;
        let swap = status.of(0).unwrap().last_swap.clone().expect("a swap");
        assert_eq!(capacity(&world.active(0).await), "448Mi");
        world.autoscaler(&class, "548Mi", hot).await;
        world.settled("1/1").await;
        assert_eq!(capacity(&world.active(0).await), "548Mi");
        over.cancel();
        let acknowledged = load.await.unwrap();

        let totals = world.sql(TOTALS).await;
        let totals: Vec<i64> = totals.split(' ').map(|one| one.parse().unwrap()).collect();
        let [done, sums @ ..] = &totals[..] else { unreachable!("five numbers") };
        let lost = usize::try_from((acknowledged - done).max(0)).unwrap();
        figures("postgresql.txt", &[("postgresql_transactions_lost", lost)]);
        assert!(
            *done >= acknowledged && acknowledged > 0,
            "{acknowledged} acknowledged: {totals:?}"
        );
        assert!(sums.iter().all(|sum| *sum == sums[0]), "money has come or gone: {totals:?}");
        assert_eq!(world.sql(CHECK).await, "", "pg_amcheck");
        let pause = swap.downtime_seconds.expect("a pod was stopped");
        eprintln!("{done} transactions, {acknowledged} acknowledged, stopped for {pause} s");
        world.end_workload().await;
    });
}
