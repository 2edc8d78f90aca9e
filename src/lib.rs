//! sipllm: chat in a terminal with language models larger than the memory they are given.
//!
//! Top to bottom, each module uses only those after it:
//!
//! * [`tui`]: the chat on a full screen.
//! * [`cli`]: the definitions of the command line.
//! * [`commands`]: one file a subcommand.
//! * [`config`]: settings from defaults, file, environment and flags.
//! * [`catalog`]: models by name: what can be fetched, what is installed, which file a name means.
//! * [`session`]: saved chats.
//! * [`forecast`]: how a model will run on this machine under any budget.
//! * [`engine`]: the inference thread and the protocol between it and the front ends.
//! * [`tokenizer`]: text to tokens and back, chat templates.
//! * [`model`]: the families of models and the forward pass over streamed weights.
//! * [`sampler`]: the next token, from the logits.
//! * [`weights`]: the budget, what is kept in memory under it, and streaming of the rest.
//! * [`kernels`]: arithmetic: the thread pool, matrix products and every operation between them, with the same bits on
//!   every instruction set and any number of threads.
//! * [`quant`]: block formats of weights and their scalar decode, the oracle for every kernel.
//! * [`gguf`]: reading model files.
//! * [`sanitize`]: text from models and files, made safe for a terminal.
//! * [`logging`]: the log file, and what becomes of a panic.
//! * [`places`]: the platform's folders for configuration, data, state and caches.
//! * [`suggest`]: "did you mean".
//! * [`fault`]: faults that tests ask for.
//! * [`small_file`]: files that a user names and that are read whole.
//! * [`size`]: sizes and budgets as people write and read them.
//! * [`words`]: counts as people say them.

pub mod catalog;
pub mod cli;
pub mod commands;
pub mod config;
pub mod engine;
pub mod fault;
pub mod forecast;
pub mod gguf;
pub mod kernels;
pub mod logging;
pub mod model;
pub mod places;
pub mod quant;
pub mod sampler;
pub mod sanitize;
pub mod session;
pub mod size;
pub mod small_file;
pub mod suggest;
pub mod tokenizer;
pub mod tui;
pub mod weights;
pub mod words;
