//! Watches for changes after which an answer is computed again.

use std::future::pending;

use futures_util::future::select_all;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::api::{NodeStorage, PvcAutoscaler};
use crate::claims::AutoscalerSummary;
use crate::cluster::{ClaimSummary, Record, Watched, every};

/// Watches the objects behind an answer until this is dropped; an object that may not be watched reports no
/// change.
#[derive(Debug)]
pub struct ChangeWatch {
    watched: Vec<watch::Receiver<()>>,
    _until: DropGuard,
}

impl ChangeWatch {
    /// Watches what [`crate::commands::status()`] shows: NodeStorages, and the PvcAutoscalers of one namespace or
    /// all.
    pub fn of_status(client: &Client, namespace: Option<&str>) -> ChangeWatch {
        let stop = CancellationToken::new();
        let nodes = watch::<NodeStorage>(Api::all(client.clone()), &stop);
        let autoscalers =
            watch::<AutoscalerSummary>(within::<PvcAutoscaler>(client, namespace), &stop);
        ChangeWatch { watched: vec![nodes, autoscalers], _until: stop.drop_guard() }
    }

    /// Watches what [`crate::commands::plan::plan`] shows: PvcAutoscalers and claims of one namespace or all.
    pub fn of_plans(client: &Client, namespace: Option<&str>) -> ChangeWatch {
        let stop = CancellationToken::new();
        let autoscalers =
            watch::<AutoscalerSummary>(within::<PvcAutoscaler>(client, namespace), &stop);
        let claims = watch::<ClaimSummary>(within(client, namespace), &stop);
        ChangeWatch { watched: vec![autoscalers, claims], _until: stop.drop_guard() }
    }

    /// Waits for the next change.
    pub async fn next(&mut self) {
        let any = self.watched.iter_mut().map(|one| {
            Box::pin(async {
                if one.changed().await.is_err() {
                    pending::<()>().await;
                }
            })
        });
        select_all(any).await;
    }

    /// Marks all changes so far as seen.
    pub fn forget(&mut self) {
        self.watched.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }
}

fn within<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(
    client: &Client,
    namespace: Option<&str>,
) -> Api<K> {
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn watch<K: Record>(api: Api<K::Object>, stop: &CancellationToken) -> watch::Receiver<()> {
    Watched::<K>::start_without_events(api, every(), stop).changes()
}
