//! Statuses of claims that the API server takes: one that it refuses stops all that is done for the claims.

use super::swap::LONGEST_SENTENCE;
use super::{InPlace, OrdinalStatus, PvcAutoscalerStatus, Swap};

/// The longest text of what is changed, or of how far something is, in characters: two classes can be longer.
const LONGEST_LINE: usize = 256;

impl PvcAutoscalerStatus {
    /// Cut each text for people that is longer than the API server takes. Names are never longer.
    pub fn bound(&mut self) {
        cut(&mut self.progress, LONGEST_LINE);
        for sentence in [&mut self.workload, &mut self.next, &mut self.message] {
            cut(sentence, LONGEST_SENTENCE);
        }
        self.ordinals.iter_mut().for_each(OrdinalStatus::bound);
    }
}

impl OrdinalStatus {
    fn bound(&mut self) {
        cut(&mut self.decision, LONGEST_SENTENCE);
        if let Some(Swap { change, progress, message, cold, .. }) = &mut self.swap {
            cut([change], LONGEST_LINE);
            cut(progress, LONGEST_LINE);
            cut(message, LONGEST_SENTENCE);
            cut(cold, LONGEST_SENTENCE);
        }
        if let Some(InPlace { change, message, .. }) = &mut self.shrink {
            cut([change], LONGEST_LINE);
            cut(message, LONGEST_SENTENCE);
        }
    }
}

fn cut<'a>(texts: impl IntoIterator<Item = &'a mut String>, most: usize) {
    texts.into_iter().for_each(|text| cut_at(text, most));
}

/// Leave so many characters of a text.
pub(super) fn cut_at(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}
