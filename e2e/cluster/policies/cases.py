"""Writes of the three accounts, and whether the admission policies are to take each. Prints JSON for main.go.

    cases.py RENDERED    the rendered chart says which image the operator's pods have
"""
import copy
import json
import re
import sys

NAMESPACE = "pliant-system"
NODE_PLUGIN, CONTROLLER, OPERATOR = (
    f"system:serviceaccount:{NAMESPACE}:pliant-{name}" for name in ("node", "controller", "operator")
)
IMAGE = re.search(r"--populator-image=(\S+)", open(sys.argv[1]).read()).group(1)
writes = []


def write(account, operation, resource, name, new=None, old=None, taken=False, namespace="shop", called="x", node="node1"):
    """One write; `resource` is `kind[/part][.group]`, `node` what the token of a node plugin names."""
    kind, _, group = resource.partition(".")
    kind, _, part = kind.partition("/")
    writes.append({
        "Name": f"{account.rsplit(':')[-1]} {operation} {resource}: {name}", "User": account, "Op": operation,
        "Node": node if account == NODE_PLUGIN else "",
        "Group": group, "Resource": kind, "Sub": part, "Namespace": namespace, "ObjName": called,
        "Object": new, "Old": old, "Expect": taken,
    })


def changed(thing, change):
    """A copy of a thing, with a change that is made to it."""
    other = copy.deepcopy(thing)
    change(other)
    return other


# Pods.
FILL = {
    "metadata": {"name": "prime-a", "namespace": "shop", "labels": {"pliant.io/populator": "a"}},
    "spec": {
        "automountServiceAccountToken": False,
        "serviceAccountName": "default",
        "securityContext": {},
        "containers": [{
            "name": "populator", "image": IMAGE,
            "env": [{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}, {"name": "Q", "value": "x"}],
            "securityContext": {"runAsUser": 0, "allowPrivilegeEscalation": False,
                                "capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
        }],
        "volumes": [
            {"name": "target", "persistentVolumeClaim": {"claimName": "prime-a"}},
            {"name": "keys", "secret": {"secretName": "send-b"}},
            {"name": "archive", "configMap": {"name": "x"}},
        ],
    },
}


def spec_with(**fields):
    return lambda pod: pod["spec"].update(fields)


def container_with(**fields):
    return lambda pod: pod["spec"]["containers"][0].update(fields)


def also_mounting(**source):
    return lambda pod: pod["spec"]["volumes"].append({"name": "more", **source})


def without(*path):
    def change(thing):
        *parents, last = path
        for parent in parents:
            thing = thing[parent]
        del thing[last]
    return change


write(OPERATOR, "CREATE", "pods", "one that fills", FILL, taken=True)
bare = changed(changed(changed(FILL, without("spec", "volumes")), without("spec", "containers", 0, "env")),
               container_with(securityContext={"allowPrivilegeEscalation": False}))
write(OPERATOR, "CREATE", "pods", "one with no volume and no capability", bare, taken=True)
OTHER = {"name": "b", "image": "other"}
SECRET = {"secretKeyRef": {"name": "victim", "key": "a"}}
for name, change in {
    "no label": without("metadata", "labels"),
    "another name": lambda pod: pod["metadata"].update(name="mine"),
    "another image": container_with(image="other"),
    "an init container": spec_with(initContainers=[OTHER]),
    "a second container": lambda pod: pod["spec"]["containers"].append(OTHER),
    "a path of the host": also_mounting(hostPath={"path": "/"}),
    "privileged": container_with(securityContext={"privileged": True}),
    "no security context": without("spec", "containers", 0, "securityContext"),
    "a capability": container_with(securityContext={"allowPrivilegeEscalation": False, "capabilities": {"add": ["SYS_ADMIN"]}}),
    "a token": without("spec", "automountServiceAccountToken"),
    "another account": spec_with(serviceAccountName="other"),
    "a projected token": also_mounting(projected={"sources": []}),
    "the network of the host": spec_with(hostNetwork=True),
    "the processes of the host": spec_with(hostPID=True),
    "the memory of the host": spec_with(hostIPC=True),
    "another Secret": also_mounting(secret={"secretName": "victim"}),
    "a Secret in a variable": container_with(env=[{"name": "A", "valueFrom": SECRET}]),
    "a Secret as variables": container_with(envFrom=[{"secretRef": {"name": "victim"}}]),
}.items():
    write(OPERATOR, "CREATE", "pods", name, changed(FILL, change))

WAITS = {"metadata": {"name": "db-0", "namespace": "shop"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
RUNS = changed(WAITS, spec_with(nodeName="n"))
GATED = changed(WAITS, spec_with(schedulingGates=[{"name": "pliant.io/volume-rebind"}]))
write(OPERATOR, "DELETE", "pods", "a running one", old=RUNS)
write(OPERATOR, "DELETE", "pods", "one on no node", old=WAITS, taken=True)
write(OPERATOR, "DELETE", "pods", "one that fills", old=FILL, taken=True)
labelled = changed(RUNS, lambda pod: pod["metadata"].update(labels={"pliant.io/populator": "x"}))
write(OPERATOR, "UPDATE", "pods", "one that becomes one that fills", labelled, RUNS)
write(OPERATOR, "UPDATE", "pods", "its gate off", WAITS, GATED, taken=True)
write(OPERATOR, "UPDATE", "pods", "its gate off and another image", changed(WAITS, container_with(image="other")), GATED)
write(OPERATOR, "UPDATE", "pods", "the gate of others off", WAITS, changed(WAITS, spec_with(schedulingGates=[{"name": "x"}])))
write("alice", "CREATE", "pods", "of a person", RUNS, taken=True)


# Secrets, and who may connect.
def secret(name, labels={"pliant.io/populator": "a"}, kind="Opaque"):
    return {"metadata": {"name": name, "namespace": "shop", **({"labels": labels} if labels else {})}, "type": kind}


def network_policy(selector):
    return {"metadata": {"name": "send-a", "labels": {"pliant.io/populator": "a"}}, "spec": {"podSelector": selector}}


own = {"namespace": NAMESPACE, "called": "pliant-webhook"}
write(OPERATOR, "CREATE", "secrets", "keys of a copy", secret("send-a"), taken=True)
write(OPERATOR, "CREATE", "secrets", "a token", secret("send-a", kind="kubernetes.io/service-account-token"))
write(OPERATOR, "CREATE", "secrets", "another name", secret("mine"))
write(OPERATOR, "CREATE", "secrets", "no label", secret("send-a", labels=None))
write(OPERATOR, "UPDATE", "secrets", "its certificates", secret("pliant-webhook"), secret("pliant-webhook"), taken=True, **own)
write(OPERATOR, "UPDATE", "secrets", "another one", secret("victim"), secret("victim"), called="victim")
write(OPERATOR, "DELETE", "secrets", "another one", old=secret("victim"))
POLICIES = "networkpolicies.networking.k8s.io"
ours = network_policy({"matchLabels": {"pliant.io/populator": "a"}})
write(OPERATOR, "CREATE", POLICIES, "of pods that fill", ours, taken=True)
write(OPERATOR, "CREATE", POLICIES, "of all pods", network_policy({}))
write(OPERATOR, "UPDATE", POLICIES, "any", network_policy({}), ours, **own)


# Claims.
def claim(size="1Gi", labels=None, annotations=None):
    notes = {"labels": labels, "annotations": annotations}
    return {"metadata": {"name": "data", **{key: value for key, value in notes.items() if value}},
            "spec": {"resources": {"requests": {"storage": size}}}}


KEPT, PRIME = {"pliant.io/pvc-autoscaler": "db"}, {"pliant.io/populator": "a"}
CLAIMS = "persistentvolumeclaims"
write(OPERATOR, "CREATE", CLAIMS, "of nobody", claim())
write(OPERATOR, "CREATE", CLAIMS, "of a workload", claim(labels=KEPT), taken=True)
write(OPERATOR, "CREATE", CLAIMS, "the second one", claim(labels=PRIME), taken=True)
write(OPERATOR, "UPDATE", CLAIMS, "another one grows", claim("2Gi"), claim())
write(OPERATOR, "UPDATE", CLAIMS, "one of a workload grows", claim("2Gi", KEPT), claim(labels=KEPT), taken=True)
write(OPERATOR, "DELETE", CLAIMS, "another one", old=claim())
write(OPERATOR, "DELETE", CLAIMS, "one of a workload", old=claim(labels=KEPT), taken=True)
write(CONTROLLER, "CREATE", CLAIMS, "any", claim(labels=KEPT))
write(CONTROLLER, "UPDATE", CLAIMS, "any grows", claim("2Gi", KEPT), claim(labels=KEPT))
write(CONTROLLER, "DELETE", CLAIMS, "any", old=claim(labels=KEPT))
for account in (CONTROLLER, OPERATOR):
    write(account, "UPDATE", CLAIMS, "an annotation", claim(annotations={"a": "b"}), claim(), taken=True)


# PersistentVolumes.
def volume(source, owner=None, policy="Retain", annotations=None, size="1Gi"):
    notes = {"annotations": annotations} if annotations else {}
    of = {"claimRef": owner} if owner else {}
    return {"metadata": {"name": "pv", **notes},
            "spec": {"capacity": {"storage": size}, "persistentVolumeReclaimPolicy": policy, "storageClassName": "c",
                     **source, **of}}


def owner(name):
    return {"namespace": "shop", "name": name, "uid": f"uid-of-{name}"}


OURS = {"csi": {"driver": "lvm.csi.pliant.io", "volumeHandle": "x"}}
THEIRS, OF_HOST = {"csi": {"driver": "other", "volumeHandle": "x"}}, {"hostPath": {"path": "/"}}
VICTIM, MINE, SECOND = owner("victim"), owner("mine"), owner("prime-9")
EXCHANGE, POPULATES = {"pliant.io/rebind": "{}"}, {"pliant.io/populates": "u"}
FILLED = {**POPULATES, "pliant.io/reclaim-policy": "Delete"}
VOLUMES = "persistentvolumes"
for account in (CONTROLLER, OPERATOR):
    write(account, "CREATE", VOLUMES, "a path of the host", volume(OF_HOST, VICTIM, annotations=EXCHANGE))
    write(account, "CREATE", VOLUMES, "another driver's", volume(THEIRS, VICTIM, annotations=EXCHANGE))
    write(account, "DELETE", VOLUMES, "another driver's", old=volume(THEIRS, VICTIM))
    write(account, "DELETE", VOLUMES, "ours", old=volume(OURS, VICTIM), taken=True)
    write(account, "UPDATE", VOLUMES, "another driver's policy", volume(THEIRS, VICTIM, "Delete"), volume(THEIRS, VICTIM))
    write(account, "UPDATE", VOLUMES, "another driver's claim", volume(THEIRS, MINE), volume(THEIRS, VICTIM))
    write(account, "UPDATE", VOLUMES, "another driver's first claim", volume(THEIRS, MINE), volume(THEIRS))
    write(account, "UPDATE", VOLUMES, "another driver's size", volume(THEIRS, VICTIM, size="9Gi"), volume(THEIRS, VICTIM))
    write(account, "UPDATE", VOLUMES, "a mark that it was filled", volume(THEIRS, VICTIM, annotations=POPULATES), volume(THEIRS, VICTIM))
    write(account, "UPDATE", VOLUMES, "a path of the host", volume(OF_HOST, MINE), volume(OF_HOST, VICTIM))
    write(account, "UPDATE", VOLUMES, "our size", volume(OURS, VICTIM, size="2Gi"), volume(OURS, VICTIM), taken=True)
write(CONTROLLER, "CREATE", VOLUMES, "ours", volume(OURS, VICTIM, "Delete"), taken=True)
write(CONTROLLER, "UPDATE", VOLUMES, "our claim", volume(OURS, MINE), volume(OURS, VICTIM))
write(OPERATOR, "CREATE", VOLUMES, "ours, in no exchange", volume(OURS, VICTIM))
write(OPERATOR, "CREATE", VOLUMES, "ours, in an exchange", volume(OURS, VICTIM, annotations=EXCHANGE), taken=True)
write(OPERATOR, "UPDATE", VOLUMES, "our claim", volume(OURS, MINE), volume(OURS, VICTIM), taken=True)
write(OPERATOR, "UPDATE", VOLUMES, "another driver's is retained", volume(THEIRS, VICTIM), volume(THEIRS, VICTIM, "Delete"), taken=True)
HOLDS = {"pliant.io/held-for-swap": "uid-of-victim"}
write(OPERATOR, "UPDATE", VOLUMES, "a swap holds its claim", volume(THEIRS, VICTIM, annotations=HOLDS), volume(THEIRS, VICTIM), taken=True)
write(OPERATOR, "UPDATE", VOLUMES, "a swap lets go of its claim", volume(THEIRS, VICTIM), volume(THEIRS, VICTIM, "Delete", HOLDS), taken=True)
RETAINED = {**HOLDS, "pliant.io/swap-reclaim-policy": "Delete"}
write(OPERATOR, "UPDATE", VOLUMES, "a swap retains it", volume(THEIRS, VICTIM, annotations=RETAINED), volume(THEIRS, VICTIM, "Delete"), taken=True)
write(OPERATOR, "UPDATE", VOLUMES, "a swap has had it, and it has its policy again", volume(THEIRS, VICTIM, "Delete"), volume(THEIRS, VICTIM, annotations=RETAINED), taken=True)
write(OPERATOR, "UPDATE", VOLUMES, "a policy of before that it had not", volume(THEIRS, VICTIM, annotations=RETAINED), volume(THEIRS, VICTIM))
write(CONTROLLER, "UPDATE", VOLUMES, "a swap has had it, and it has its policy again", volume(THEIRS, VICTIM, "Delete"), volume(THEIRS, VICTIM, annotations=RETAINED))
DETACHED = {"pliant.io/detached-for": "uid-of-mine"}
write(OPERATOR, "UPDATE", VOLUMES, "it was proved unused", volume(THEIRS, VICTIM, annotations=DETACHED), volume(THEIRS, VICTIM), taken=True)
write(CONTROLLER, "UPDATE", VOLUMES, "it was proved unused", volume(THEIRS, VICTIM, annotations=DETACHED), volume(THEIRS, VICTIM))
write(OPERATOR, "UPDATE", VOLUMES, "a swap holds another claim", volume(THEIRS, MINE, annotations=HOLDS), volume(THEIRS, MINE))
write(OPERATOR, "UPDATE", VOLUMES, "the prime claim's is held", volume(THEIRS, SECOND, annotations=FILLED), volume(THEIRS, SECOND, "Delete"), taken=True)
write(OPERATOR, "UPDATE", VOLUMES, "it is handed over", volume(THEIRS, VICTIM, annotations=FILLED), volume(THEIRS, SECOND, annotations=FILLED), taken=True)
write(OPERATOR, "UPDATE", VOLUMES, "it has its policy again", volume(THEIRS, VICTIM, "Delete", POPULATES), volume(THEIRS, VICTIM, annotations=FILLED), taken=True)


# What people want, what nodes say, and what is asked of them.
def request(name, node="n"):
    return {"metadata": {"name": "r"}, "spec": {"nodeName": node, "volumeHandle": "v", "operation": {name: {}}}}


REQUESTS, ANSWERS = "volumerequests.pliant.io", "volumerequests/status.pliant.io"
THING = {"metadata": {"name": "node1"}, "spec": {"nodeHash": "k"}}
HELD, EDITED = changed(THING, lambda one: one["metadata"].update(finalizers=["x"])), changed(THING, spec_with(nodeHash="z"))
for name, taken in {"fence": True, "inspect": True, "shrink": True, "unpin": True, "expand": False, "create": False, "delete": False}.items():
    write(OPERATOR, "CREATE", REQUESTS, name, request(name), taken=taken)
    write(OPERATOR, "DELETE", REQUESTS, name, old=request(name), taken=taken)
    write(OPERATOR, "UPDATE", REQUESTS, name, request(name), request(name))
    for operation, old in {"CREATE": None, "UPDATE": request(name)}.items():
        write(CONTROLLER, operation, REQUESTS, name, request(name), old, taken=True)
    write(CONTROLLER, "DELETE", REQUESTS, name, old=request(name), taken=True)
for account in (CONTROLLER, OPERATOR):
    is_operator = account == OPERATOR
    write(account, "UPDATE", ANSWERS, "any", request("fence"), request("fence"))
    for kind, may in {
        "nodestorages": {"DELETE"} if not is_operator else set(),
        "storagepools": {"status"} if not is_operator else set(),
        "pvcautoscalers": {"status"} if is_operator else set(),
        "archivepopulators": {"status", "finalizers"} if is_operator else set(),
        "pvcsourcepopulators": {"status", "finalizers", "CREATE", "DELETE", "spec"} if is_operator else set(),
    }.items():
        write(account, "CREATE", f"{kind}.pliant.io", "any", THING, taken="CREATE" in may)
        write(account, "DELETE", f"{kind}.pliant.io", "any", old=THING, taken="DELETE" in may)
        write(account, "UPDATE", f"{kind}.pliant.io", "what is wanted", EDITED, THING, taken="spec" in may)
        write(account, "UPDATE", f"{kind}.pliant.io", "finalizers", HELD, THING, taken="finalizers" in may)
        write(account, "UPDATE", f"{kind}/status.pliant.io", "any", THING, THING, taken="status" in may)
write(NODE_PLUGIN, "CREATE", "nodestorages.pliant.io", "its own", THING, taken=True)
write(NODE_PLUGIN, "UPDATE", "nodestorages/status.pliant.io", "its own", THING, THING, taken=True)
write(NODE_PLUGIN, "UPDATE", ANSWERS, "its own", request("expand", "node1"), request("expand", "node1"), taken=True)
write(NODE_PLUGIN, "UPDATE", ANSWERS, "another node's", request("expand", "node2"), request("expand", "node2"))
alias = changed(THING, lambda one: one["metadata"].update(name="node1.stranger"))
write(NODE_PLUGIN, "CREATE", "nodestorages.pliant.io", "another name", alias)
write(NODE_PLUGIN, "CREATE", REQUESTS, "for its node", request("fence", "node1"))
for kind in ("storagepools", "pvcautoscalers", "archivepopulators", "pvcsourcepopulators"):
    write(NODE_PLUGIN, "UPDATE", f"{kind}/status.pliant.io", "any", THING, THING)
    write(NODE_PLUGIN, "UPDATE", f"{kind}/status.pliant.io", "any, with a token of no node", THING, THING, node="")
write(NODE_PLUGIN, "DELETE", "nodestorages.pliant.io", "its own", old=THING)
write(NODE_PLUGIN, "DELETE", REQUESTS, "of its node", old=request("expand", "node1"))
OWNED = changed(THING, lambda one: one["metadata"].update(ownerReferences=[{"name": "x"}]))
for name, thing in {"with a finalizer": HELD, "with an owner": OWNED}.items():
    write(NODE_PLUGIN, "CREATE", "nodestorages.pliant.io", f"its own, {name}", thing)
    write(NODE_PLUGIN, "UPDATE", "nodestorages.pliant.io", f"its own, {name}", thing, THING)
write(NODE_PLUGIN, "UPDATE", "nodestorages.pliant.io", "its own key", EDITED, THING)
write(NODE_PLUGIN, "UPDATE", REQUESTS, "what it is asked for", request("delete", "node1"), request("expand", "node1"))

json.dump(writes, sys.stdout)
