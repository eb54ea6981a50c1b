//! The webhook that gives pods their claims: its server over TLS, its certificates and its configuration,
//! against an API server in memory.

mod certificates;
mod configuration;
mod hostile;
mod pods;
mod world;
