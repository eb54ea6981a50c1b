//! What has happened so far, and where to stop.

/// Which side of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// It has not happened.
    Before,
    /// It has happened, and nobody was told.
    After,
}

impl Side {
    /// Both of them.
    pub const BOTH: [Side; 2] = [Side::Before, Side::After];
}

/// What has happened so far, and where to stop.
#[derive(Clone, Default)]
pub(super) struct Effects {
    pub(super) done: Vec<String>,
    pub(super) cut: Option<(usize, Side)>,
    pub(super) hold: Option<usize>,
    pub(super) hold_call: Option<String>,
    pub(super) stopped: bool,
}

impl Effects {
    pub fn count(&self) -> usize {
        self.done.len()
    }
}
