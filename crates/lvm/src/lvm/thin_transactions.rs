//! The changes to the volumes of a thin pool, which LVM and the kernel both count.
//!
//! LVM notes in its metadata what the kernel is to change, sends it that, and then has it count the change. A snapshot whose
//! command was killed between the last two is there and not counted. Each further command sends all that is noted again, and
//! the kernel refuses to make a snapshot that is there: no snapshot can be made in the pool, and no volume removed.
//!
//! # Source
//! `_thin_pool_node_send_messages` in LVM2's `device_mapper/libdm-deptree.c`.

use nix::libc::ENODATA;

use crate::lvm::group::{Group, ThinMessage};
use crate::lvm::volume_group::{VgGuard, failed};
use crate::lvm::{LvmError, thin_usage};

/// What LVM says when the kernel has the snapshot that it is to make.
const IS_THERE: &str = "File exists";

/// Sends the kernel what comes after a snapshot that it has, if a refusal says that it has one, and has it count that;
/// returns whether there was something to send.
///
/// LVM itself has tried to make the snapshot, so that nothing is counted which was not done. What the refused command has
/// noted behind it is sent too: once the counts agree, LVM forgets all that it has noted.
///
/// # Errors
/// [`LvmError::Host`] if the kernel refuses a message: nothing is counted then.
pub(super) async fn send_what_waits(turn: &VgGuard, refusal: &str) -> Result<bool, LvmError> {
    if !refusal.contains(IS_THERE) || turn.seen().await?.thin_pool().is_none() {
        return Ok(false);
    }
    let group = turn.read().await?; // With what the refused command has noted.
    let Some(pool) = group.thin_pool() else { return Ok(false) };
    let host_failed = |error| failed(&turn.group, error);
    let (host, device) = (&turn.group.host, pool.device());
    let status = host.dm_status(&device).await.map_err(host_failed)?;
    let counted = status.and_then(|(_, targets)| thin_usage::transaction(&targets.first()?.params));
    // Further apart is more than one command can leave: a person decides.
    let Some(counted) = counted.filter(|counted| counted + 1 == pool.segment.transaction) else {
        return Ok(false);
    };
    let Some(deleted) = deleted_after_snapshot(&group, &pool.segment.messages) else {
        return Ok(false);
    };
    tracing::warn!(
        group = group.name,
        counted,
        "counting a snapshot that an LVM command left half-made in the thin pool"
    );
    for id in deleted {
        match host.dm_message(&device, &format!("delete {id}")).await {
            Err(error) if error.errno() != Some(ENODATA) => return Err(host_failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    let message = format!("set_transaction_id {counted} {}", pool.segment.transaction);
    host.dm_message(&device, &message).await.map_err(host_failed)?;
    Ok(true)
}

/// The ids of the volumes to be deleted, if the first message makes a snapshot and all others delete something.
fn deleted_after_snapshot(group: &Group, messages: &[ThinMessage]) -> Option<Vec<u64>> {
    let (ThinMessage::Create(name), others) = messages.split_first()? else { return None };
    let made = group.lvs.get(name)?;
    made.segments.iter().find(|segment| segment.volumes.contains_key("origin"))?;
    let id = |message: &ThinMessage| match message {
        ThinMessage::Delete(id) => Some(*id),
        ThinMessage::Create(_) => None,
    };
    others.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lvm::metadata::parse_group;
    use crate::lvm::thin::tests::TEXT;

    fn deleted(messages: &str) -> Option<Vec<u64>> {
        let text = TEXT.replace("zero_new_blocks = 1", &format!("zero_new_blocks = 1 {messages}"));
        let group = parse_group(text.as_bytes()).expect("metadata");
        let pool = group.thin_pool().expect("a thin pool");
        deleted_after_snapshot(&group, &pool.segment.messages)
    }

    #[test]
    fn only_a_snapshot_that_comes_first_is_counted_and_what_is_deleted_after_it_deleted() {
        assert_eq!(deleted(""), None);
        assert_eq!(deleted(r#"message1 { create = "s" }"#), Some(vec![]));
        let two = r#"message1 { create = "s" } message2 { delete = 2 } message3 { delete = 7 }"#;
        assert_eq!(deleted(two), Some(vec![2, 7]));
        assert_eq!(deleted(r#"message1 { create = "a" }"#), None, "no snapshot");
        assert_eq!(deleted(r#"message1 { create = "gone" }"#), None);
        assert_eq!(deleted("message1 { delete = 2 }"), None);
        let two = r#"message1 { delete = 2 } message2 { create = "s" }"#;
        assert_eq!(deleted(two), None);
        let two = r#"message1 { create = "s" } message2 { create = "s" }"#;
        assert_eq!(deleted(two), None);
    }
}
