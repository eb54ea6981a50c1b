//! The loops: each observes, plans and applies, and asks nobody whether it is its turn.
//!
//! On a node, [`agent`] carries out the requests for it, [`storage`] tells what it has, and
//! [`pools::follow`] makes its pools those that the administrator wants. In the controller, [`pools`]
//! says which nodes a pool is for, [`cleaner`] removes requests that have ended, and [`events`] tells
//! people what has happened. Every replica of
//! the controller runs its loops: an effect that another one had already is none.

pub mod agent;
pub mod cleaner;
mod conditions;
pub mod events;
pub mod pools;
pub mod storage;
