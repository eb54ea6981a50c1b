//! Any bytes as names that tenants write, and as an expression of the webhook: shared by the fuzz target and by
//! the test that runs its corpus.

use std::collections::BTreeSet;

use pliant::webhook::{Service, StatefulSetRef, names_in, webhooks};

/// Parse bytes as what the first of them picks: as names of namespace and StatefulSet, one a line with a
/// tab between, that go into the webhook's expression; or as such an expression. Says whether all of them
/// were names, or the expression was one of ours.
pub fn parse(bytes: &[u8]) -> bool {
    let Some((kind, bytes)) = bytes.split_first() else {
        return false;
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return false;
    };
    let victim = StatefulSetRef::parse("bank", "db").expect("a name");
    if kind % 2 == 0 {
        let lines: Vec<&str> = text.lines().collect();
        let read = lines.iter().map(|line| {
            let (namespace, name) = line.split_once('\t')?;
            StatefulSetRef::parse(namespace, name)
        });
        let named: BTreeSet<StatefulSetRef> = read.clone().flatten().chain([victim]).collect();
        let parts = expressions(&named);
        let said: Vec<BTreeSet<StatefulSetRef>> =
            parts.iter().map(|one| names_in(one).expect("it is ours")).collect();
        for (expression, names) in parts.iter().zip(&said) {
            // Of those that we write around the list there are three.
            assert_eq!(expression.split('\'').count(), 2 * (3 + names.len()) + 1, "{expression}");
        }
        assert_eq!(said.into_iter().flatten().collect::<BTreeSet<_>>(), named);
        return read.clone().all(|one| one.is_some());
    }
    // The list of an expression that is otherwise ours.
    let ours = expressions(&BTreeSet::from([victim])).remove(0);
    let expression = ours.replace("'bank/db'", text);
    names_in(&expression).is_some_and(|named| {
        let written = expressions(&named);
        let again = written.first().and_then(|one| names_in(one));
        assert!(written.len() != 1 || again.as_ref() == Some(&named), "{expression}");
        true
    })
}

fn expressions(named: &BTreeSet<StatefulSetRef>) -> Vec<String> {
    let service: Service = "pliant-system/pliant-webhook".parse().expect("a Service");
    let webhooks = webhooks(&service, named, "");
    let conditions = webhooks.into_iter().flat_map(|one| one.match_conditions.unwrap_or_default());
    conditions.map(|one| one.expression).collect()
}
