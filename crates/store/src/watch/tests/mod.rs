//! Tests of the watch machinery over a history that is a list.

mod checker;
mod fake;
mod model;
mod parts;
mod queues;
mod rooms;
mod rules;
#[cfg(feature = "schedules")]
mod schedule_tests;
mod stress;
