//! Selection of the StatefulSets that the webhook names: each namespace has a share, so that no namespace uses
//! up the configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::StatefulSetRef;
use crate::api::DnsName;

/// Maximum size of the names of one namespace, in bytes: some 200 of the longest, well over a thousand usual
/// ones.
const MOST_OF_NAMESPACE: usize = 64 << 10;

/// Maximum size of all names, in bytes. An object has at most 1.5 MiB in etcd, and the authorities and the
/// rest are next to the names.
const MOST: usize = 800 << 10;

/// Size of a name besides its letters: quotes, slash, comma and space.
const AROUND: usize = 5;

/// The StatefulSets that the webhook names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct NamedStatefulSets {
    pub named: BTreeSet<StatefulSetRef>,
    /// StatefulSets that exist and exceed the share of their namespace.
    pub left_out: BTreeSet<StatefulSetRef>,
}

/// Shares the configuration among the `wanted` StatefulSets, some of which are already `named`. Only
/// StatefulSets are named that exist, or that did when they were named: if one is deleted and created again
/// during a swap, the webhook always sees its pods.
///
/// Named ones come first in their namespace. Namespaces take turns of one name each, so those with few names
/// get all of theirs.
pub(super) fn share(
    wanted: BTreeSet<StatefulSetRef>,
    named: &BTreeSet<StatefulSetRef>,
    exists: impl Fn(&StatefulSetRef) -> bool,
) -> NamedStatefulSets {
    let mut namespaces: BTreeMap<DnsName, Namespace> = BTreeMap::new();
    for workload in wanted {
        let is_named = named.contains(&workload);
        let exists = exists(&workload);
        if exists || is_named {
            let namespace = namespaces.entry(workload.namespace.clone()).or_default();
            namespace.wanted.insert((!exists, !is_named, workload));
        }
    }
    let (mut shares, mut taken) = (NamedStatefulSets::default(), 0);
    while !namespaces.is_empty() {
        namespaces.retain(|_, namespace| {
            let Some((is_gone, _, workload)) = namespace.wanted.pop_first() else { return false };
            let size = namespace.size_with(&workload);
            let fits = namespace.taken + size <= MOST_OF_NAMESPACE && taken + size <= MOST;
            if fits {
                (namespace.taken, taken) = (namespace.taken + size, taken + size);
                shares.named.insert(workload);
            } else if !is_gone {
                shares.left_out.insert(workload);
            }
            true
        });
    }
    shares
}

/// A share of the webhook with too few bytes left for the name of one more StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullShare {
    /// The namespace whose share it is; `None` is what all namespaces have together.
    pub namespace: Option<DnsName>,
    /// Number of StatefulSets that it names.
    pub names: usize,
    /// Size of their names, in bytes.
    pub taken: usize,
    /// Size of the share, in bytes.
    pub most: usize,
}

impl fmt::Display for FullShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FullShare { namespace, names, taken, most } = self;
        match namespace {
            Some(namespace) => write!(
                f,
                "namespace {namespace} has used up its share of the webhook: the names of {names} StatefulSets \
                 under PvcAutoscalers take {taken} of {most} bytes. Delete PvcAutoscalers of this namespace that \
                 are no longer needed, or move StatefulSets to another namespace"
            ),
            None => write!(
                f,
                "the webhook has no space for more names: those of {names} StatefulSets under PvcAutoscalers take \
                 {taken} of {most} bytes. Delete PvcAutoscalers that are no longer needed, in any namespace"
            ),
        }
    }
}

/// Returns the share that prevents the webhook from naming one more StatefulSet.
pub(super) fn full_share(
    named: &BTreeSet<StatefulSetRef>,
    workload: &StatefulSetRef,
) -> Option<FullShare> {
    let mut namespaces: BTreeMap<&DnsName, (usize, Namespace)> = BTreeMap::new();
    for one in named {
        let (count, namespace) = namespaces.entry(&one.namespace).or_default();
        (*count, namespace.taken) = (*count + 1, namespace.taken + namespace.size_with(one));
    }
    let all: usize = namespaces.values().map(|(_, namespace)| namespace.taken).sum();
    let (count, own) = namespaces.remove(&workload.namespace).unwrap_or_default();
    let size = own.size_with(workload);
    if own.taken + size > MOST_OF_NAMESPACE {
        let (namespace, taken) = (Some(workload.namespace.clone()), own.taken);
        return Some(FullShare { namespace, names: count, taken, most: MOST_OF_NAMESPACE });
    }
    let is_full = all + size > MOST;
    let full = FullShare { namespace: None, names: named.len(), taken: all, most: MOST };
    is_full.then_some(full)
}

/// Names of one namespace in the order of their selection: existing ones first, and named ones first among
/// these.
#[derive(Default)]
struct Namespace {
    wanted: BTreeSet<(bool, bool, StatefulSetRef)>,
    taken: usize,
}

impl Namespace {
    /// Size of a name in bytes; the first one of a namespace also selects the namespace.
    fn size_with(&self, workload: &StatefulSetRef) -> usize {
        let (namespace, name) = (workload.namespace.as_str().len(), workload.name.as_str().len());
        let selected = if self.taken == 0 { namespace + AROUND } else { 0 };
        namespace + name + AROUND + selected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(namespace: &str, name: &str) -> StatefulSetRef {
        StatefulSetRef::parse(namespace, name).unwrap()
    }

    /// So many names of the greatest length, in one namespace.
    fn many(namespace: &str, count: usize) -> BTreeSet<StatefulSetRef> {
        (0..count).map(|n| workload(namespace, &format!("{n:0253}"))).collect()
    }

    fn bytes(shares: &NamedStatefulSets) -> usize {
        shares.named.iter().map(|one| one.namespace.as_str().len() + one.name.as_str().len()).sum()
    }

    #[test]
    fn only_what_exists_is_named() {
        let (db, none) = (workload("bank", "db"), workload("bank", "none"));
        let wanted = BTreeSet::from([db.clone(), none.clone()]);
        let shares = share(wanted.clone(), &BTreeSet::new(), |one| *one == db);
        assert_eq!(shares.named, BTreeSet::from([db.clone()]));
        // One that was named and is gone may come back, and must not come without its claims.
        let shares = share(wanted, &BTreeSet::from([none.clone()]), |one| *one == db);
        assert_eq!(shares.named, BTreeSet::from([db.clone(), none.clone()]));
        let shares = share(BTreeSet::from([db.clone()]), &BTreeSet::from([none]), |_| true);
        assert_eq!(shares.named, BTreeSet::from([db]));
    }

    #[test]
    fn a_namespace_has_a_share_and_others_have_theirs() {
        let victim = workload("bank", "db");
        let mut wanted = many("a-tenant", 10_000);
        wanted.insert(victim.clone());
        let shares = share(wanted.clone(), &BTreeSet::new(), |_| true);
        assert!(shares.named.contains(&victim));
        assert!(bytes(&shares) < MOST_OF_NAMESPACE + 16, "{}", bytes(&shares));
        assert_eq!(shares.named.len() + shares.left_out.len(), wanted.len());
        // Those that are named stay so, whoever comes before them in the order of the names.
        let kept = shares.named.clone();
        wanted.extend((0..100).map(|n| workload("a-tenant", &format!("{n:0100}"))));
        assert_eq!(share(wanted, &kept, |_| true).named, kept);
    }

    #[test]
    fn whoever_is_not_named_has_the_share_that_is_full() {
        let victim = workload("bank", "db");
        let of = |wanted: BTreeSet<StatefulSetRef>, one: &StatefulSetRef| {
            full_share(&share(wanted, &BTreeSet::new(), |_| true).named, one)
        };
        let (tenant, more) = (many("shop", 2_100), workload("shop", &"x".repeat(253)));
        let full = of(tenant.clone(), &more).expect("its share is used up");
        assert_eq!((full.namespace, full.names), (Some("shop".parse().unwrap()), 250));
        assert!(full.taken <= full.most && full.taken + 262 > full.most, "{}", full.taken);
        assert_eq!(of(tenant, &victim), None, "others have theirs");
        let few: BTreeSet<StatefulSetRef> = many("shop", 200);
        assert_eq!(of(few, &more), None, "it is named soon");

        let all = (0..100).flat_map(|n| many(&format!("a-tenant-{n}"), 200)).collect();
        let full = of(all, &workload("bank", &"x".repeat(253))).expect("all is used up");
        assert_eq!((full.namespace.as_ref(), full.most), (None, MOST));
        let text = full.to_string();
        assert!(text.contains(&format!("take {} of 819200 bytes", full.taken)), "{text}");
    }

    #[test]
    fn many_namespaces_share_what_there_is() {
        let mut wanted: BTreeSet<StatefulSetRef> =
            (0..100).flat_map(|n| many(&format!("a-tenant-{n}"), 200)).collect();
        let victims: Vec<StatefulSetRef> =
            (0..10).map(|n| workload("bank", &format!("db-{n}"))).collect();
        wanted.extend(victims.iter().cloned());
        let shares = share(wanted, &BTreeSet::new(), |_| true);
        assert!(victims.iter().all(|one| shares.named.contains(one)));
        assert!(bytes(&shares) <= MOST, "{}", bytes(&shares));
        let of = |n: usize| {
            let namespace = format!("a-tenant-{n}");
            shares.named.iter().filter(|one| one.namespace.as_str() == namespace).count()
        };
        let counts: Vec<usize> = (0..100).map(of).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least > 25 && most - least <= 1, "{counts:?}");
    }
}
