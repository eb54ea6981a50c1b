//! Lists of the API server, as far as the caller may read them.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::api::NodeStorage;
use crate::ask::{AskError, STORAGES, asked};
use crate::cluster::{self, Guarded, Unreadable, believe, guarded};

/// Reads lists, and remembers what may not be read: who may not list something is told so, and told the
/// rest.
pub(super) struct Reader<'a> {
    pub client: &'a Client,
    /// What the caller may not read.
    pub unseen: Vec<&'static str>,
    /// What this version cannot decode.
    pub unreadable: Vec<Unreadable>,
    /// Of what it cannot decode some: what is not among the rest may be there.
    pub partial: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub fn new(client: &'a Client) -> Self {
        Reader { client, unseen: Vec::new(), unreadable: Vec::new(), partial: Vec::new() }
    }

    /// The objects of a kind in the whole cluster.
    pub fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// List; nothing of a kind that is not defined, as ours where the driver is not installed.
    pub async fn list<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug>(
        &mut self,
        api: Api<K>,
        params: ListParams,
        what: &'static str,
    ) -> Result<Vec<K>, AskError> {
        match cluster::list(&api, &params).await {
            Ok(list) => {
                list.unreadable.into_iter().for_each(|one| self.note_undecoded(one, what));
                Ok(list.items)
            }
            Err(error) => self.unread(error, what).map(|()| Vec::new()),
        }
    }

    /// The records of the nodes, each with what is its own to say.
    pub async fn storages(&mut self) -> Result<Vec<NodeStorage>, AskError> {
        let all = self.list(self.all(), ListParams::default(), STORAGES).await;
        all.map(believed)
    }

    /// Get one object; `None` also if the caller may not, or this version cannot decode it.
    pub async fn get<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug>(
        &mut self,
        api: Api<K>,
        name: &str,
        what: &'static str,
    ) -> Result<Option<K>, AskError> {
        match guarded(api).get_opt(name).await {
            Ok(Some(Guarded(Ok(found)))) => Ok(Some(found)),
            Ok(Some(Guarded(Err(one)))) => {
                self.note_undecoded(one, what);
                Ok(None)
            }
            Ok(None) => Ok(None),
            Err(error) => self.unread(error, what).map(|()| None),
        }
    }

    /// Note an object that this version cannot decode.
    pub fn note_undecoded(&mut self, one: Unreadable, what: &'static str) {
        self.unreadable.push(one);
        self.partial.push(what);
    }

    fn unread(&mut self, error: kube::Error, what: &'static str) -> Result<(), AskError> {
        match &error {
            kube::Error::Api(status) if status.is_forbidden() => {
                self.unseen.push(what);
                Ok(())
            }
            kube::Error::Api(status) if status.is_not_found() => Ok(()),
            _ => Err(asked(what)(error)),
        }
    }
}

/// Of each record of a node what is its own to say.
pub(super) fn believed(mut records: Vec<NodeStorage>) -> Vec<NodeStorage> {
    records.iter_mut().for_each(believe);
    records
}
