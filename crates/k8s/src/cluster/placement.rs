//! Choice of the node of a new volume. Pure.

use crate::bytes::Bytes;

/// A node that has the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCandidate<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Largest volume that fits, as last reported.
    pub largest: Bytes,
}

/// Chooses the node for a volume of this size; `None` only if there is no candidate.
///
/// Of the requested nodes, the first with enough free space, since callers name the best first;
/// without a request, the one with the most free space. If none has enough, the one that lacks least:
/// its report may be old, and its answer has the present numbers.
pub fn place<'a>(
    candidates: &[NodeCandidate<'a>],
    asked: &[String],
    size: Bytes,
) -> Option<&'a str> {
    let roomy = |candidate: &&NodeCandidate| candidate.largest >= size;
    let mut allowed: Vec<&NodeCandidate> = match asked {
        [] => candidates.iter().collect(),
        asked => asked
            .iter()
            .filter_map(|node| candidates.iter().find(|candidate| candidate.node == node))
            .collect(),
    };
    let first = allowed.iter().find(|candidate| roomy(candidate)).map(|one| one.node);
    // By name too, so that the same nodes give the same choice.
    allowed.sort_by(|a, b| b.largest.cmp(&a.largest).then(a.node.cmp(b.node)));
    first.filter(|_| !asked.is_empty()).or(allowed.first().map(|one| one.node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_goes_where_it_was_asked_for_and_has_room() {
        let candidate = |node, gib| NodeCandidate { node, largest: Bytes::gib(gib) };
        let all = [candidate("a", 1), candidate("b", 4), candidate("c", 9), candidate("d", 9)];
        for (asked, gib, node) in [
            (&[][..], 2, Some("c")),
            (&[], 20, Some("c")),
            (&["b", "c"], 2, Some("b")),
            (&["b", "c"], 5, Some("c")),
            (&["a", "b"], 5, Some("b")),
            (&["x", "a"], 1, Some("a")),
            (&["x"], 1, None),
        ] {
            let asked: Vec<String> = asked.iter().map(|node| (*node).to_owned()).collect();
            assert_eq!(place(&all, &asked, Bytes::gib(gib)), node, "{gib} GiB on {asked:?}");
        }
        assert_eq!(place(&[], &[], Bytes::gib(1)), None);
    }
}
