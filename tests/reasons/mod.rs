//! Reasons of events that no enum lists.

/// Those of events about an object of any kind.
pub const OF_ANY_OBJECT: [&str; 4] = [
    pliant::cluster::INTERNAL_ERROR,
    pliant::cluster::NAMESPACE_TOO_LARGE,
    pliant::cluster::OBJECT_UNREADABLE,
    pliant::controllers::topology::TOPOLOGY_KEY_UNKNOWN,
];
