//! Lists in pages.

use crate::csi::parse::ParseError;
use crate::csi::pb;
use crate::volume::{Volume, VolumeId};

/// The part of a list that is asked for.
///
/// A token is the id that ended the page before, so a page stays right when volumes come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    after: Option<VolumeId>,
    most: Option<usize>,
}

impl Page {
    /// Parse what `ListVolumes` asks for.
    pub fn of_volumes(request: &pb::ListVolumesRequest) -> Result<Self, ParseError> {
        Page::new(request.max_entries, &request.starting_token)
    }

    /// Parse what `ControllerListVolumeHealth` asks for.
    pub fn of_health(request: &pb::ControllerListVolumeHealthRequest) -> Result<Self, ParseError> {
        Page::new(request.max_entries, &request.starting_token)
    }

    fn new(most: i32, token: &str) -> Result<Self, ParseError> {
        let most = usize::try_from(most)
            .map_err(|_| ParseError::invalid("max_entries", format!("{most} is negative")))?;
        let after = Some(token).filter(|token| !token.is_empty());
        Ok(Page {
            after: after.map(|token| token.parse().map_err(|_| ParseError::Token)).transpose()?,
            most: Some(most).filter(|most| *most > 0),
        })
    }

    /// Cut the page out of all volumes, which come in the order of their ids; and say the token of
    /// the next one, empty after the last.
    pub fn cut(&self, volumes: Vec<Volume>) -> (Vec<Volume>, String) {
        let rest = volumes
            .into_iter()
            .filter(|volume| self.after.as_ref().is_none_or(|after| volume.id > *after));
        let mut page: Vec<Volume> = rest.collect();
        let most = self.most.unwrap_or(usize::MAX);
        let more = page.len() > most;
        page.truncate(most);
        let last = page.last().filter(|_| more);
        let token = last.map(|volume| volume.id.to_string());
        (page, token.unwrap_or_default())
    }
}
