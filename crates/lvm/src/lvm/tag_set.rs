//! A set of short words, such as the flags and the tags of a volume.

use std::collections::BTreeSet;
use std::fmt;

/// What is between two words: it ends the text of LVM's metadata, so no word of it has one.
const BETWEEN: char = '\0';

/// A set of words, in their order.
///
/// It is one piece of memory, where a tree of strings takes one for each word and one for itself: a
/// group has a thousand volumes, and each of them two such sets. A word with a zero byte would be two.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Words(Box<str>);

impl Words {
    /// The words, each once, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split_terminator(BETWEEN)
    }

    /// Returns whether this word is one of them.
    pub fn contains(&self, word: &str) -> bool {
        self.iter().any(|one| one == word)
    }

    /// Returns whether all of them are among the others.
    pub fn is_subset(&self, others: &Words) -> bool {
        self.iter().all(|word| others.contains(word))
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes a word; returns whether it was among them.
    pub fn remove(&mut self, word: &str) -> bool {
        let is_there = self.contains(word);
        *self = self.iter().filter(|one| *one != word).collect();
        is_there
    }
}

impl<T: AsRef<str>> FromIterator<T> for Words {
    fn from_iter<I: IntoIterator<Item = T>>(words: I) -> Self {
        let words: Vec<T> = words.into_iter().collect();
        let words: BTreeSet<&str> = words.iter().map(AsRef::as_ref).collect();
        let mut text = String::with_capacity(words.iter().map(|word| word.len() + 1).sum());
        for word in words {
            text.push_str(word);
            text.push(BETWEEN);
        }
        Words(text.into_boxed_str())
    }
}

impl<T: AsRef<str>> Extend<T> for Words {
    fn extend<I: IntoIterator<Item = T>>(&mut self, words: I) {
        let more: Vec<T> = words.into_iter().collect();
        *self = self.iter().chain(more.iter().map(AsRef::as_ref)).collect();
    }
}

impl<T: AsRef<str>, const N: usize> From<[T; N]> for Words {
    fn from(words: [T; N]) -> Self {
        words.into_iter().collect()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_words_are_not_one_empty_word() {
        assert_eq!(Words::default().iter().count(), 0);
        assert!(Words::default().is_empty());
        let empty = Words::from([""]);
        assert_eq!(empty.iter().collect::<Vec<_>>(), [""]);
        assert!(!empty.is_empty());
    }

    proptest! {
        #[test]
        fn a_set_of_words_is_a_set(words: Vec<String>, more: Vec<String>, at: prop::sample::Index) {
            let plain = |words: Vec<String>| -> Vec<String> {
                words.iter().map(|word| word.replace(BETWEEN, "")).collect()
            };
            let (words, more) = (plain(words), plain(more));
            let mut all: BTreeSet<String> = words.iter().cloned().collect();
            let mut set: Words = words.iter().collect();
            prop_assert!(set.iter().eq(&all));
            all.extend(more.iter().cloned());
            set.extend(&more);
            prop_assert!(set.iter().eq(&all) && Words::from_iter(&words).is_subset(&set));
            if !all.is_empty() {
                let gone = all.iter().nth(at.index(all.len())).cloned().unwrap();
                all.remove(&gone);
                prop_assert!(set.remove(&gone) && !set.remove(&gone) && !set.contains(&gone));
                prop_assert!(set.iter().eq(&all));
            }
        }
    }
}
