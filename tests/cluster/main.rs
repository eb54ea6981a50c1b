//! The volumes of a cluster: a controller, agents on machines in memory, and an API server in memory
//! between them.

mod volumes;
mod world;
