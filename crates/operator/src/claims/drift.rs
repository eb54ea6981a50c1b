//! Differences between a claim and its desired state. Pure.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use crate::api::{OrdinalStatus, PvcAutoscalerSpec, Quantity, TemplateSpec, VolumeMode};
use crate::autoscaler::wanted;
use crate::cluster::{ClaimSizes, UnreadableSize, class_of, refusal};

/// Difference between a claim and its desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Drift {
    /// No difference.
    None,
    /// Only smaller.
    Grow,
    /// Its request exceeds the free space, and is larger than the desired size.
    Lower,
    /// Its failed request exceeds the desired size, which its volume has: Kubernetes takes no request for just that.
    Unreduced,
    /// Only larger; the change, in words.
    Shrink(String),
    /// Only larger, expanded by another client or by autoscaling that is no more; the difference, in words.
    Larger(String),
    /// Another claim is necessary; the change, in words.
    Swap(String),
    /// No claim can be copied to the desired state.
    VolumeModeMismatch,
    /// A size of it cannot be read, so that nothing is known of how it differs.
    Unreadable(UnreadableSize),
}

impl Drift {
    /// Returns true if the desired state takes another size or class. Kubernetes changes neither on a claim that has no
    /// volume yet: that one is deleted, and created again.
    pub fn is_of_size_or_class(&self) -> bool {
        matches!(self, Drift::Grow | Drift::Lower | Drift::Shrink(_) | Drift::Swap(_))
    }

    /// Compares the claim of a pod with its desired state. A larger claim is not shrunk unless the template was
    /// lowered, autoscaling chose a smaller size, or the template was edited since it chose one: whoever
    /// expanded it, for example in an emergency, would do so again.
    pub fn of_pod(
        spec: &PvcAutoscalerSpec,
        entry: &OrdinalStatus,
        claim: &PersistentVolumeClaim,
        can_grow: bool,
    ) -> Drift {
        let template = &spec.volume_claim_template.spec;
        let size = wanted(spec, entry.autoscaled_size.as_ref());
        let is_lowered = entry.template_size.is_none_or(|before| before > size);
        // Autoscaling chose it, or the template was edited since it chose.
        let is_ordered = spec.autoscale.is_some() && entry.autoscaled_size.is_some();
        match Drift::of(claim, template, size, can_grow) {
            Drift::Shrink(change) if !is_lowered && !is_ordered => Drift::Larger(change),
            drift => drift,
        }
    }

    /// Compares a claim with the template and its desired size.
    pub fn of(
        claim: &PersistentVolumeClaim,
        wanted: &TemplateSpec,
        size: Quantity,
        can_grow: bool,
    ) -> Drift {
        let spec = claim.spec.clone().unwrap_or_default();
        let is_block = spec.volume_mode.as_deref() == Some("Block");
        if is_block != (wanted.volume_mode == VolumeMode::Block) {
            return Drift::VolumeModeMismatch;
        }
        let mut changes = Vec::new();
        let (has, capacity, refusal) = match (ClaimSizes::of(claim), refusal(claim)) {
            (Ok(sizes), Ok(refusal)) => (sizes.requested, sizes.capacity, refusal),
            (Err(why), _) | (_, Err(why)) => return Drift::Unreadable(why),
        };
        let lowers = size < has && size > capacity && refusal.is_some();
        let is_left = size < has && size == capacity && refusal.is_some();
        let shrinks = size < has && !lowers && !is_left;
        if shrinks || size > has && !can_grow {
            changes.push(format!("{has} → {size}"));
        }
        // Without one in the template whatever was chosen at first is right.
        let class = wanted.storage_class_name.as_ref();
        if class.is_some_and(|class| class_of(claim) != Some(class)) {
            let before = class_of(claim).map_or("none", String::as_str);
            changes.push(format!("class {before} → {}", class.map_or("none", String::as_str)));
        }
        let modes = spec.access_modes.unwrap_or_default();
        if sorted(&modes) != sorted(&wanted.access_modes) {
            changes.push(format!("{} → {}", modes.join(","), wanted.access_modes.join(",")));
        }
        let attributes = &wanted.volume_attributes_class_name;
        if attributes.is_some() && spec.volume_attributes_class_name != *attributes {
            let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "none".to_owned());
            let before = name(&spec.volume_attributes_class_name);
            changes.push(format!("attributes {before} → {}", name(attributes)));
        }
        match changes.as_slice() {
            [only] if shrinks => Drift::Shrink(only.clone()),
            [_, ..] => Drift::Swap(changes.join(", ")),
            [] if lowers => Drift::Lower,
            [] if is_left => Drift::Unreduced,
            [] if size > has => Drift::Grow,
            [] => Drift::None,
        }
    }
}

fn sorted(modes: &[String]) -> Vec<&String> {
    let mut modes: Vec<&String> = modes.iter().collect();
    modes.sort();
    modes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_claim_asks_for_less_if_it_did_not_get_more() {
        let claim = |status: Value| -> PersistentVolumeClaim {
            serde_json::from_value(json!({"metadata": {}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "8Gi"}},
            }, "status": status}))
            .unwrap()
        };
        let refused = |tried: &str, word: &str| {
            json!({"capacity": {"storage": "4Gi"}, "allocatedResources": {"storage": tried},
                   "allocatedResourceStatuses": {"storage": word}})
        };
        let infeasible = "ControllerResizeInfeasible";
        let wanted = |gib| {
            let spec = json!({"accessModes": ["ReadWriteOnce"],
                              "resources": {"requests": {"storage": format!("{gib}Gi")}}});
            serde_json::from_value::<TemplateSpec>(spec).unwrap()
        };
        let shrink = |gib: u64| Drift::Shrink(format!("8Gi → {gib}Gi"));
        for (status, gib, expected) in [
            (refused("8Gi", infeasible), 6, Drift::Lower),
            (refused("8Gi", infeasible), 4, Drift::Unreduced),
            (refused("8Gi", infeasible), 8, Drift::None),
            (refused("8Gi", infeasible), 9, Drift::Grow),
            (refused("8Gi", infeasible), 2, shrink(2)),
            (refused("9Gi", infeasible), 6, shrink(6)),
            (refused("8Gi", "ControllerResizeInProgress"), 6, shrink(6)),
            (json!({"capacity": {"storage": "8Gi"}}), 6, shrink(6)),
        ] {
            let size = Quantity(crate::bytes::Bytes::gib(gib));
            let drift = Drift::of(&claim(status.clone()), &wanted(gib), size, true);
            assert_eq!(drift, expected, "{status} {gib}");
        }
    }

    #[test]
    fn a_claim_is_compared_by_its_size_as_the_api_server_stores_it() {
        let template = json!({"accessModes": [], "resources": {"requests": {"storage": "1Gi"}}});
        let template: TemplateSpec = serde_json::from_value(template).unwrap();
        let drift = |asks: &str, has: &str, gib: u64| {
            let claim = json!({"metadata": {"name": "data"},
                               "spec": {"resources": {"requests": {"storage": asks}}},
                               "status": {"capacity": {"storage": has}}});
            let claim = serde_json::from_value(claim).unwrap();
            Drift::of(&claim, &template, Quantity(crate::bytes::Bytes::gib(gib)), true)
        };
        assert_eq!(drift("1181116006400m", "1181116007", 2), Drift::Grow);
        let shrink = Drift::Shrink("1181116007 → 1Gi".to_owned());
        assert_eq!(drift("1181116006400m", "1181116007", 1), shrink, "it is never patched to less");
        assert_eq!(drift("1e10", "10e9", 10), Drift::Grow);
        for (asks, has) in [("1e50", "1Gi"), ("1Gi", "1e50"), ("100E", "1Gi")] {
            let drift = drift(asks, has, 2);
            assert!(matches!(drift, Drift::Unreadable(_)), "{asks} {has}: {drift:?}");
        }
    }

    #[test]
    fn a_claim_grows_where_nothing_else_differs() {
        let claim = |size: &str| -> PersistentVolumeClaim {
            serde_json::from_value(json!({"metadata": {}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                "resources": {"requests": {"storage": size}},
            }}))
            .unwrap()
        };
        let wanted = |more: Value| -> TemplateSpec {
            let mut spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "hdd",
                                  "resources": {"requests": {"storage": "4Gi"}}});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value(spec).unwrap()
        };
        let swap = |what: &str| Drift::Swap(what.to_owned());
        let plain = json!({});
        for (has, more, can_grow, expected) in [
            ("4Gi", plain.clone(), true, Drift::None),
            ("4096Mi", plain.clone(), true, Drift::None),
            ("2Gi", plain.clone(), true, Drift::Grow),
            ("2Gi", plain.clone(), false, swap("2Gi → 4Gi")),
            ("8Gi", plain, true, Drift::Shrink("8Gi → 4Gi".to_owned())),
            ("4Gi", json!({"storageClassName": "ssd"}), true, swap("class hdd → ssd")),
            ("2Gi", json!({"storageClassName": "ssd"}), true, swap("class hdd → ssd")),
            ("4Gi", json!({"storageClassName": null}), true, Drift::None),
            ("8Gi", json!({"storageClassName": "ssd"}), true, swap("8Gi → 4Gi, class hdd → ssd")),
            (
                "4Gi",
                json!({"accessModes": ["ReadWriteOncePod"]}),
                true,
                swap("ReadWriteOnce → ReadWriteOncePod"),
            ),
            (
                "4Gi",
                json!({"volumeAttributesClassName": "gold"}),
                true,
                swap("attributes none → gold"),
            ),
            ("4Gi", json!({"volumeMode": "Filesystem"}), true, Drift::None),
            ("4Gi", json!({"volumeMode": "Block"}), true, Drift::VolumeModeMismatch),
        ] {
            let drift = Drift::of(
                &claim(has),
                &wanted(more.clone()),
                Quantity(crate::bytes::Bytes::gib(4)),
                can_grow,
            );
            assert_eq!(drift, expected, "{has} {more}");
        }
    }
}
