use serde_json::json;

use super::*;

fn workload(namespace: &str, name: &str) -> Workload {
    Workload { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn service() -> Service {
    "pliant-system/pliant-webhook".parse().unwrap()
}

fn configuration(workloads: &BTreeSet<Workload>) -> MutatingWebhookConfiguration {
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
    let workloads: BTreeSet<Workload> = (0..1000).map(long).collect();
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
