//! The real broker under load while it is killed, loses power, has no space or no network.
//! `cargo test -p e2e --test crash -- --nocapture --test-threads=1`; `make crash` runs the long
//! form.
//!
//! Each test draws its faults from a seed, which it prints. What is acknowledged must be there,
//! what is not need not: see `e2e::ledger`.

mod bed;
mod full_volume;
mod kill;
mod lossy_fs;
mod network;
mod power;
mod tcp_fault;
