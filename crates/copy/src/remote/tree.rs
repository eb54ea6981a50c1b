//! A tree that a pod of another node sends, as if it were here.

use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::io;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::client::{Connection, RemoteTree};
use super::message::{Job, Name, WalkPart, nonsense};
use super::prefetch::{PrefetchConnection, RemoteFile};
use crate::copy::{
    self, Attributes, CopyError, Dir, DirNames, EntryKind, Meta, Needs, ProgressReporter,
    SourceTree, Stamp, Steps, Tick, WalkStep, WalkStepKind, shown,
};

/// Clocks that differ by more are not to be trusted: a file is compared and not believed.
const APART_S: i64 = 300;

impl SourceTree for RemoteTree {
    type Steps = RemoteSteps;

    fn space_needed(
        &self,
        live: bool,
        block: u64,
        tell: &mut ProgressReporter,
    ) -> Result<Needs, CopyError> {
        let block = NonZeroU64::new(block).unwrap_or(NonZeroU64::MIN);
        let mut stream = self.remote.connect(Job::Count { live, block })?;
        stream.part(&mut |entries| (0..entries).try_for_each(|_| tell.file_done()))
    }

    fn steps(&self, how: copy::TreeOptions, _: &Dir) -> Result<RemoteSteps, CopyError> {
        let stream = self.remote.connect(Job::Walk { live: how.round == copy::Pass::PreCopy })?;
        let reading = Rc::new(RefCell::new(PrefetchConnection::of(&self.remote)?));
        Ok(RemoteSteps {
            reading,
            clocks: stream.clocks,
            doubt: self.doubt,
            stream,
            levels: Vec::new(),
            path: Vec::new(),
            leaving: false,
            said: StepReply::Nothing,
            vanished: 0,
        })
    }

    fn entries(
        &self,
        _: Option<copy::IndexReader>,
        limit: Option<u64>,
        tick: Tick,
        take: copy::Take,
    ) -> Result<(), CopyError> {
        let limit = limit.and_then(NonZeroU64::new);
        let mut stream = self.remote.connect(Job::Entries { limit })?;
        while let Some(entry) = stream.part(tick)? {
            take(entry)?;
        }
        Ok(())
    }
}

/// A walk at the source, which is streamed.
pub struct RemoteSteps {
    stream: Connection,
    reading: Rc<RefCell<PrefetchConnection>>,
    clocks: (Stamp, Stamp),
    doubt: Duration,
    /// Each directory of the way down: its name, what was said of it, and where its path ends.
    levels: Vec<(CString, Meta, usize)>,
    path: Vec<u8>,
    /// Whether the last step was the end of a directory.
    leaving: bool,
    said: StepReply,
    vanished: u64,
}

/// What was said with the last step.
enum StepReply {
    Nothing,
    Names(NameSet),
    Thing(io::Result<(Attributes, Vec<u8>)>),
    Leave(Meta, Attributes),
}

impl Steps for RemoteSteps {
    type File = RemoteFile;

    fn next(&mut self) -> Result<Option<WalkStep>, CopyError> {
        if std::mem::take(&mut self.leaving) {
            self.levels.pop();
        }
        let is_below = !self.levels.is_empty();
        match self.part()? {
            WalkPart::End(vanished) if !is_below => {
                self.vanished = vanished;
                Ok(None)
            }
            // The top alone has no name.
            WalkPart::Enter(name, meta) if name.is_some() == is_below => {
                self.enter(name.map(Name::into_c).unwrap_or_default(), meta).map(Some)
            }
            WalkPart::Entry(name, meta, looked) if is_below => {
                let name = name.into_c();
                self.below(&name);
                self.said = StepReply::Thing(looked.map_err(io::Error::from));
                Ok(Some(WalkStep { step: WalkStepKind::Thing, name, meta }))
            }
            WalkPart::Leave(now, attributes) if is_below => self.leave(now, attributes).map(Some),
            _ => Err(self.stream.refuse("steps in an invalid order")),
        }
    }

    fn path(&self) -> &[u8] {
        &self.path
    }

    fn gone(&mut self, theirs: &DirNames) -> Result<Vec<CString>, CopyError> {
        let StepReply::Names(names) = &self.said else { return Ok(Vec::new()) };
        let gone = theirs.iter().filter(|name| !names.contains(name));
        Ok(gone.map(CStr::to_owned).collect())
    }

    fn leaving(&mut self) -> io::Result<(Meta, Attributes)> {
        match std::mem::replace(&mut self.said, StepReply::Nothing) {
            StepReply::Leave(now, attributes) => Ok((now, attributes)),
            _ => Err(nonsense("a directory without an end")),
        }
    }

    fn look(&mut self, _: &WalkStep) -> io::Result<(Attributes, Vec<u8>)> {
        match std::mem::replace(&mut self.said, StepReply::Nothing) {
            StepReply::Thing(looked) => looked,
            _ => Err(nonsense("a file without metadata")),
        }
    }

    fn open(&mut self, found: &WalkStep) -> io::Result<RemoteFile> {
        let (attributes, _) = self.look(found)?;
        if found.meta.kind != EntryKind::File {
            return Err(Errno::STALE.into());
        }
        let met = (found.meta.clone(), attributes);
        Ok(RemoteFile::met(self.reading.clone(), &self.path, met))
    }

    fn vanished(&self) -> u64 {
        self.vanished
    }

    fn changed(&self) -> CopyError {
        CopyError::Changed { path: shown(&self.path) }
    }

    fn as_of(&self, target: Stamp) -> Option<Stamp> {
        as_of(self.clocks, self.doubt, target)
    }
}

impl RemoteSteps {
    fn below(&mut self, name: &CString) {
        let length = self.levels.last().map_or(0, |(_, _, length)| *length);
        self.path.truncate(length);
        if length > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
    }

    fn enter(&mut self, name: CString, meta: Meta) -> Result<WalkStep, CopyError> {
        self.below(&name);
        self.levels.push((name.clone(), meta.clone(), self.path.len()));
        let mut names = NameSet::default();
        loop {
            let WalkPart::Names(more) = self.part()? else {
                return Err(self.stream.refuse("no names"));
            };
            if more.is_empty() {
                break;
            }
            for name in &more {
                names.add(name.as_c()).map_err(|error| self.stream.failed(error))?;
            }
        }
        names.sort();
        self.said = StepReply::Names(names);
        Ok(WalkStep { step: WalkStepKind::Enter, name, meta })
    }

    fn leave(&mut self, now: Meta, attributes: Attributes) -> Result<WalkStep, CopyError> {
        let Some((name, meta, length)) = self.levels.last() else {
            return Err(self.stream.refuse("the end of a directory that did not begin"));
        };
        self.path.truncate(*length);
        self.leaving = true;
        self.said = StepReply::Leave(now, attributes);
        Ok(WalkStep { step: WalkStepKind::Leave, name: name.clone(), meta: meta.clone() })
    }

    /// The next part of the walk, which has no ticks.
    fn part(&mut self) -> Result<WalkPart, CopyError> {
        self.stream.part(&mut |_| Ok(()))
    }
}

/// All names of a directory at the source, in one piece: some have millions.
#[derive(Debug, Default)]
struct NameSet {
    bytes: Vec<u8>,
    /// Where each begins and ends; in the order of the names once they are sorted.
    places: Vec<(u32, u8)>,
}

impl NameSet {
    /// How many bytes they may take: a pod has 512 MiB.
    const MOST: usize = 96 << 20;

    /// # Errors
    /// That there are too many.
    fn add(&mut self, name: &CStr) -> io::Result<()> {
        let name = name.to_bytes();
        let takes = self.bytes.len() + self.places.len() * size_of::<(u32, u8)>() + name.len();
        let place = u32::try_from(self.bytes.len()).ok().zip(u8::try_from(name.len()).ok());
        let place = place.filter(|_| takes <= NameSet::MOST);
        self.places.push(place.ok_or_else(|| {
            let most = NameSet::MOST >> 20;
            io::Error::other(format!("the names of one directory take more than {most} MiB"))
        })?);
        self.bytes.extend_from_slice(name);
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by_key(|place| name_at(bytes, *place));
    }

    fn contains(&self, name: &CStr) -> bool {
        let name = name.to_bytes();
        self.places.binary_search_by_key(&name, |place| name_at(&self.bytes, *place)).is_ok()
    }
}

fn name_at(bytes: &[u8], (start, length): (u32, u8)) -> &[u8] {
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    bytes.get(start..).and_then(|rest| rest.get(..usize::from(length))).unwrap_or_default()
}

/// A time of this host by the clock of the source, and a while before, if both clocks are of any
/// use.
fn as_of((theirs, ours): (Stamp, Stamp), doubt: Duration, then: Stamp) -> Option<Stamp> {
    let apart = theirs.seconds.checked_sub(ours.seconds)?;
    if apart.abs() > APART_S {
        return None;
    }
    let doubt = i64::try_from(doubt.as_secs()).ok()?;
    let seconds = then.seconds.checked_add(apart)?.checked_sub(doubt)?;
    Some(Stamp { seconds, nanos: then.nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_one_directory_are_found_again_and_bounded() {
        let mut names = NameSet::default();
        for name in [c"b", c"a", c"ab", c"\xff", c"a.b"] {
            names.add(name).unwrap();
        }
        names.sort();
        assert!([c"b", c"a", c"ab", c"\xff", c"a.b"].iter().all(|name| names.contains(name)));
        assert!(![c"", c"aa", c"c", c"a."].iter().any(|name| names.contains(name)));

        let long = CString::new([b'x'; 255]).unwrap();
        let mut names = NameSet::default();
        let added = (0..1_000_000).try_for_each(|_| names.add(&long));
        let error = added.expect_err("names without an end are taken");
        assert!(error.to_string().ends_with("take more than 96 MiB"), "{error}");
    }

    #[test]
    fn what_the_target_says_is_believed_by_the_clock_of_the_source_and_a_minute_late() {
        let at = |seconds| Stamp { seconds, nanos: 7 };
        let as_of = |clocks, then| as_of(clocks, Duration::from_secs(60), then);
        assert_eq!(as_of((at(1000), at(1000)), at(500)), Some(at(440)));
        assert_eq!(as_of((at(1200), at(1000)), at(500)), Some(at(640)));
        assert_eq!(as_of((at(800), at(1000)), at(500)), Some(at(240)));
        for theirs in [699, 1301] {
            assert_eq!(as_of((at(theirs), at(1000)), at(500)), None);
        }
        assert_eq!(as_of((at(i64::MIN), at(1000)), at(500)), None);
        assert_eq!(as_of((at(0), at(0)), at(i64::MIN)), None);
    }
}
