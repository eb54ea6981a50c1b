//! Reads lists from the API server, as far as the caller may.

use std::fmt::Debug;

use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::api::NodeStorage;
use crate::cluster::{self, Guarded, Unreadable, believe, guarded};
use crate::commands::{AskError, STORAGES, asked};

/// Reads lists, and collects the kinds that the caller may not read, so the rest can be answered.
pub(super) struct ListReader<'a> {
    pub client: &'a Client,
    /// Kinds that the caller may not read.
    pub unseen: Vec<&'static str>,
    /// Objects that this version cannot decode.
    pub unreadable: Vec<Unreadable>,
    /// Kinds with objects that this version cannot decode, so others may exist.
    pub partial: Vec<&'static str>,
}

impl<'a> ListReader<'a> {
    pub fn new(client: &'a Client) -> Self {
        ListReader { client, unseen: Vec::new(), unreadable: Vec::new(), partial: Vec::new() }
    }

    /// The objects of a kind in the whole cluster.
    pub fn all<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    /// Lists objects; empty for a kind without a CRD, as ours are if the driver is not installed.
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

    /// The NodeStorages, each reduced to what its node may report.
    pub async fn storages(&mut self) -> Result<Vec<NodeStorage>, AskError> {
        let all = self.list(self.all(), ListParams::default(), STORAGES).await;
        all.map(believed)
    }

    /// Gets one object; `None` also if the caller may not read it, or this version cannot decode it.
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

    /// Notes an object that this version cannot decode.
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

/// Reduces each NodeStorage to what its node may report.
pub(super) fn believed(mut records: Vec<NodeStorage>) -> Vec<NodeStorage> {
    records.iter_mut().for_each(believe);
    records
}
