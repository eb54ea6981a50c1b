//! Lists in pages: a token is the id that ended the page before.

use crate::parse::ParseError;
use crate::pb;
use crate::volume::Page;

/// Parses the page that `ListVolumes` asks for.
pub fn page_of_volumes(request: &pb::ListVolumesRequest) -> Result<Page, ParseError> {
    page(request.max_entries, &request.starting_token)
}

/// Parses the page that `ControllerListVolumeHealth` asks for.
pub fn page_of_health(request: &pb::ControllerListVolumeHealthRequest) -> Result<Page, ParseError> {
    let page = page(request.max_entries, &request.starting_token)?;
    Ok(Page { only_ailing: true, ..page })
}

/// Parses the most entries of a page; 0: any number.
pub(super) fn most_of(most: i32) -> Result<Option<usize>, ParseError> {
    let most = usize::try_from(most)
        .map_err(|_| ParseError::invalid("max_entries", format!("{most} is negative")))?;
    Ok(Some(most).filter(|most| *most > 0))
}

fn page(most: i32, token: &str) -> Result<Page, ParseError> {
    let after = Some(token).filter(|token| !token.is_empty());
    Ok(Page {
        after: after.map(|token| token.parse().map_err(|_| ParseError::Token)).transpose()?,
        most: most_of(most)?,
        only_ailing: false,
    })
}
