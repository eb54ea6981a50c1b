use proptest::prelude::*;
use serde_json::json;

use super::*;

fn workload(namespace: &str, name: &str) -> StatefulSetRef {
    StatefulSetRef::parse(namespace, name).unwrap()
}

fn service() -> Service {
    "pliant-system/pliant-webhook".parse().unwrap()
}

fn configuration(workloads: &BTreeSet<StatefulSetRef>) -> MutatingWebhookConfiguration {
    MutatingWebhookConfiguration {
        webhooks: Some(webhooks(&service(), workloads, "CA")),
        ..MutatingWebhookConfiguration::default()
    }
}

#[test]
fn without_a_stateful_set_nobody_is_asked() {
    assert_eq!(webhooks(&service(), &BTreeSet::new(), "CA"), []);
}

#[test]
fn the_webhook_names_the_stateful_sets_and_no_others() {
    let workloads =
        BTreeSet::from([workload("shop", "web"), workload("bank", "db"), workload("shop", "db")]);
    let expression = "has(object.metadata.ownerReferences) && \
        object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && \
        o.kind == 'StatefulSet' && o.apiVersion.startsWith('apps/') && \
        (request.namespace + '/' + o.name) in ['bank/db', 'shop/db', 'shop/web'])";
    let expected = json!([{
        "name": "pods-0.webhook.pliant.io",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "caBundle": "Q0E=",
            "service": {"namespace": "pliant-system", "name": "pliant-webhook", "path": "/pods", "port": 443},
        },
        "failurePolicy": "Fail",
        "matchConditions": [{"name": "stateful-sets-of-pvc-autoscalers", "expression": expression}],
        "matchPolicy": "Equivalent",
        "namespaceSelector": {"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["bank", "shop"]}]},
        "objectSelector": {},
        "reinvocationPolicy": "IfNeeded",
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
                   "resources": ["pods"], "scope": "Namespaced"}],
        "sideEffects": "None",
        "timeoutSeconds": 5,
    }]);
    assert_eq!(json!(webhooks(&service(), &workloads, "CA")), expected);
}

#[test]
fn what_is_covered_is_what_is_named() {
    let named = configuration(&BTreeSet::from([workload("shop", "db"), workload("bank", "web")]));
    assert!(covers(&named, &workload("shop", "db")));
    assert!(covers(&named, &workload("bank", "web")));
    for (namespace, name) in
        [("shop", "web"), ("bank", "db"), ("shop", "d"), ("hop", "db"), ("shop", "db2")]
    {
        assert!(!covers(&named, &workload(namespace, name)), "{namespace}/{name}");
    }
    assert!(!covers(&MutatingWebhookConfiguration::default(), &workload("shop", "db")));
}

#[test]
fn thousands_of_stateful_sets_are_covered_by_expressions_that_kubernetes_takes() {
    let long = |n: usize| workload(&format!("{:063}", n / 100), &format!("{n:0253}"));
    let workloads: BTreeSet<StatefulSetRef> = (0..1000).map(long).collect();
    let configuration = configuration(&workloads);
    let webhooks = configuration.webhooks.as_ref().unwrap();
    let names: BTreeSet<&str> = webhooks.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((webhooks.len(), names.len()), (5, 5));
    for one in webhooks {
        assert!(one.match_conditions.as_ref().unwrap()[0].expression.len() < 100_000);
    }
    assert!(workloads.iter().all(|one| covers(&configuration, one)));
    assert!(
        serde_json::to_vec(&configuration).unwrap().len() < 1 << 20,
        "an object has at most 1.5 MiB"
    );
}

/// Names of which each would change what is asked of all pods, if it got into the expression as it is:
/// one that ends a string, one that switches the webhook off for who comes later in the list, and one that
/// has it asked for every pod.
const ATTACKS: [&str; 3] = ["'", "x'] && false && 'y' in ['z", "x'] || true || 'y' in ['z"];

/// The strings of an expression as CEL reads them, without those that we write ourselves.
fn literals(expression: &str) -> Vec<&str> {
    let list = expression.strip_prefix(BEFORE_NAMES).unwrap();
    list.split('\'').skip(1).step_by(2).collect()
}

#[test]
fn what_a_tenant_writes_gets_into_no_expression() {
    for name in ATTACKS {
        assert_eq!(StatefulSetRef::parse("a-tenant", name), None, "{name}");
        assert_eq!(StatefulSetRef::parse(name, "db"), None, "{name}");
    }
}

#[test]
fn a_condition_that_is_not_as_we_write_it_covers_none() {
    let victim = workload("bank", "db");
    for attack in ATTACKS {
        let mut named = configuration(&BTreeSet::from([workload("a-tenant", "x"), victim.clone()]));
        assert!(covers(&named, &victim));
        let webhook = &mut named.webhooks.as_mut().unwrap()[0];
        let conditions = webhook.match_conditions.as_mut().unwrap();
        let text = &mut conditions[0].expression;
        *text = text.replace("'a-tenant/x'", &format!("'a-tenant/{attack}'"));
        assert!(text.contains("'bank/db'"), "{text}");
        assert!(!covers(&named, &victim), "{attack}");
    }
    let mut two = configuration(&BTreeSet::from([victim.clone()]));
    let conditions = two.webhooks.as_mut().unwrap()[0].match_conditions.as_mut().unwrap();
    conditions.push(MatchCondition { name: "never".to_owned(), expression: "false".to_owned() });
    assert!(!covers(&two, &victim));
}

proptest! {
    #[test]
    fn an_expression_has_one_string_for_each_name(
        names in prop::collection::btree_set(("[a-z0-9.'/\\] -]{0,6}|\\PC{0,8}", "[a-z0-9.'/\\], -]{0,6}|\\PC{0,8}"), 0..20)
    ) {
        let victim = workload("bank", "db");
        let named = names.iter().filter_map(|(namespace, name)| StatefulSetRef::parse(namespace, name));
        let workloads: BTreeSet<StatefulSetRef> = named.chain([victim.clone()]).collect();
        let configuration = configuration(&workloads);
        let webhook = &configuration.webhooks.as_ref().unwrap()[0];
        let expression = &webhook.match_conditions.as_ref().unwrap()[0].expression;
        prop_assert_eq!(literals(expression).len(), workloads.len());
        prop_assert_eq!(names_in(expression), Some(workloads));
        prop_assert!(covers(&configuration, &victim));
    }

    #[test]
    fn what_is_read_from_an_expression_is_all_that_it_says(text in "('[a-z./-]{1,5}/[a-z.-]{1,3}'|[', a-z/\\[\\]]{0,4}|, ){0,6}") {
        let expression = format!("{BEFORE_NAMES}{text}{AFTER_NAMES}");
        if let Some(named) = names_in(&expression) {
            let literals: BTreeSet<String> = named.iter().map(StatefulSetRef::literal).collect();
            let said: BTreeSet<String> = text.split(", ").map(str::to_owned).collect();
            prop_assert_eq!(literals, said);
        }
    }
}
