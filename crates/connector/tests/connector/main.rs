//! The connector with its real store and sockets, fake platforms and scripted gateways.
#![allow(clippy::expect_used, reason = "tests")]

mod authentication;
mod floods;
mod hermes;
mod isolation;
mod queue;
mod routing;
mod support;
