//! Who is master: detection, election, in-sync set and hand-over of one group.
//!
//! Every operator replica has a `Controller` for each group and answers brokers with it. Only the one
//! that leads *begins* elections and hand-overs; that is for calm. Safety is in the record alone: a
//! decision is a write that names the version on which it was made, and fails if there is another.

mod config;
mod effect;
mod input;

pub use config::ControllerConfig;
pub use effect::{Condition, ControllerEffect, Refusal};
pub use input::{AlterRequest, ControllerInput, FreezeFailure, Heartbeat, ProbeAnswer, Token};

use crate::Millis;

/// See the module.
#[derive(Debug)]
pub struct Controller {
    config: ControllerConfig,
}

impl Controller {
    /// A controller that knows nothing yet.
    #[must_use]
    pub fn new(config: ControllerConfig) -> Self {
        Self { config }
    }

    /// Takes an input and says what to do.
    pub fn handle(&mut self, _now: Millis, input: ControllerInput) -> Vec<ControllerEffect> {
        match input {
            ControllerInput::Config(config) => self.config = config,
            ControllerInput::Tick => {}
            _ => {}
        }
        Vec::new()
    }
}
