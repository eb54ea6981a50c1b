//! Tutorials, typed as they stand in a namespace of their own; only their images are those of the tests.

use crate::calls::output;
use crate::postgresql::SERVER;
use crate::repository::{blocks, read};
use crate::world::run;

/// The commands of a page, which end at the first that fails.
fn commands(page: &str, namespace: &str) -> String {
    let kubectl =
        format!("kubectl() {{ command kubectl --namespace {namespace} \"$@\"; }}\nset -eu");
    let blocks = blocks(page).into_iter().filter(|(kind, _)| kind == "sh").map(|(_, text)| text);
    [kubectl].into_iter().chain(blocks).collect::<Vec<_>>().join("\n")
}

/// The image of the tests has the programs of PostgreSQL, and not the script that starts them.
fn with_our_postgresql(page: &str) -> String {
    let server = SERVER.replace("/data", "/var/lib/postgresql/data");
    let image = format!(
        "image: pliant.test/postgresql:15\n          command: [sh, -c, '{server}']\n          \
         securityContext: {{runAsUser: 999, runAsGroup: 999}}"
    );
    let path = "env:\n            - {name: PATH, value: '/usr/lib/postgresql/15/bin:/usr/bin:/bin'}\n            \
                - {name: PGHOST, value: /tmp}";
    let owned = "spec:\n      securityContext: {fsGroup: 999, fsGroupChangePolicy: OnRootMismatch}\n      containers:";
    let swaps = [
        ("image: postgres:17", image.as_str()),
        ("env:", path),
        ("spec:\n      containers:", owned),
        // The disks of the tests are slow.
        ("storage: 1Gi", "storage: 320Mi"),
        ("storage: 1536Mi", "storage: 400Mi"),
    ];
    swaps.into_iter().fold(page.to_owned(), |page, (theirs, ours)| {
        assert_eq!(page.matches(theirs).count(), 1, "{theirs}");
        page.replace(theirs, ours)
    })
}

#[test]
fn a_database_is_restored_from_a_snapshot() {
    run("a_database_is_restored_from_a_snapshot", |world| async move {
        let page = with_our_postgresql(&read("docs/src/tutorials/snapshot.md"));
        let typed = output("sh", &["-c", &commands(&page, &world.name)]).await;
        let printed = String::from_utf8_lossy(&typed.stdout);
        assert!(typed.status.success(), "{printed}\n{typed:?}");
        assert!(printed.contains("1000000"), "{printed}");
    });
}
