//! Bytes that are mostly zeroes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const PAGE: u64 = 4096;

/// Sparse content; what was never written is zeroes. Copies share their pages until they are written.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Pages(BTreeMap<u64, Arc<Vec<u8>>>);

impl Pages {
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let range = offset..offset + length;
        let mut bytes = vec![0; usize::try_from(length).expect("it fits in memory")];
        for (page, content) in self.0.range(range.start / PAGE..range.end.div_ceil(PAGE)) {
            let (start, end) = ((page * PAGE).max(range.start), ((page + 1) * PAGE).min(range.end));
            let (_, within) = locate(&(start..end));
            let at = usize::try_from(start - range.start).expect("it fits in memory");
            bytes[at..at + within.len()].copy_from_slice(&content[within]);
        }
        bytes
    }

    pub fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        for part in pages(offset..offset + bytes.len() as u64) {
            let (page, within) = locate(&part);
            let (now, rest) = bytes.split_at(within.len());
            let blank = || Arc::new(vec![0; within_page(PAGE)]);
            let content = Arc::make_mut(self.0.entry(page).or_insert_with(blank));
            content[within].copy_from_slice(now);
            bytes = rest;
        }
    }

    /// Where pages begin that were ever written, within a range.
    pub fn written(&self, range: &Range<u64>) -> impl Iterator<Item = u64> + use<'_> {
        self.0.range(range.start.div_ceil(PAGE)..range.end / PAGE).map(|(page, _)| page * PAGE)
    }

    /// What was ever written in a range: where, and the bytes.
    pub fn known(&self, range: &Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let pages = self.0.range(range.start / PAGE..range.end.div_ceil(PAGE));
        let parts = pages.map(|(page, _)| {
            let start = (page * PAGE).max(range.start);
            let end = ((page + 1) * PAGE).min(range.end);
            (start, self.read(start, end - start))
        });
        parts.collect()
    }

    pub fn zero(&mut self, range: &Range<u64>) {
        let known: Vec<u64> = self
            .0
            .range(range.start / PAGE..range.end.div_ceil(PAGE))
            .map(|(page, _)| *page)
            .collect();
        for page in known {
            let start = (page * PAGE).max(range.start);
            let end = ((page + 1) * PAGE).min(range.end);
            if end - start == PAGE {
                self.0.remove(&page);
            } else if let Some(content) = self.0.get_mut(&page) {
                let part = within_page(start - page * PAGE)..within_page(end - page * PAGE);
                Arc::make_mut(content)[part].fill(0);
            }
        }
    }
}

/// Cut a range at the borders of pages.
fn pages(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut next = range.start;
    std::iter::from_fn(move || {
        let start = next;
        next = range.end.min((start / PAGE + 1) * PAGE);
        (start < range.end).then_some(start..next)
    })
}

fn locate(part: &Range<u64>) -> (u64, Range<usize>) {
    let page = part.start / PAGE;
    let base = page * PAGE;
    (page, within_page(part.start - base)..within_page(part.end - base))
}

pub(super) fn within_page(offset: u64) -> usize {
    usize::try_from(offset).expect("at most a page")
}
