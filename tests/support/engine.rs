//! The engine through its handle: loading, asking, and how answers end.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use sipllm::engine::protocol::{
    Budget, Command, Event, Failure, FinishReason, GenerationStats, KernelKind, KvType, LoadRequest, ModelInfo, Prompt,
    Request, Residency, Sampling, SourceKind,
};
use sipllm::engine::{EngineHandle, EventReceiver};

pub fn load(path: PathBuf) -> LoadRequest {
    LoadRequest {
        path,
        budget: Budget::Bytes(1 << 30),
        threads: Some(2),
        context: Some(128),
        kernel: KernelKind::Int8,
        residency: Residency::Quantized,
        source: SourceKind::Buffered,
        kv: KvType::F16,
        prefill_batch: None,
        disk_limit: None,
        least_context: 128,
        speeds_file: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("devices.json")),
    }
}

pub fn request(prompt: Prompt, max_tokens: u32) -> Request {
    Request {
        id: 1,
        prompt,
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        max_tokens: Some(max_tokens),
        stop: Vec::new(),
        stop_at_end: false,
        thinking: None,
    }
}

pub struct Engine {
    pub handle: EngineHandle,
    pub events: EventReceiver,
}

/// How an answer ended, and its text.
#[derive(Debug)]
pub enum End {
    Finished(String, FinishReason, Box<GenerationStats>),
    Broken(Failure),
}

impl Engine {
    pub fn new() -> Self {
        let (handle, events) = EngineHandle::spawn().unwrap();
        Self { handle, events }
    }

    pub fn loaded(request: LoadRequest) -> (Self, ModelInfo) {
        let mut engine = Self::new();
        let info = engine.load(request).unwrap_or_else(|failure| panic!("{failure:?}"));
        (engine, info)
    }

    pub fn load(&mut self, request: LoadRequest) -> Result<ModelInfo, Failure> {
        self.handle.send(Command::Load(Box::new(request)));
        loop {
            match self.events.blocking_recv().expect("the engine lives") {
                Event::Loaded(info) => return Ok(*info),
                Event::Failed(failure) => return Err(failure),
                _ => {}
            }
        }
    }

    pub fn answer(&mut self, request: Request) -> End {
        self.answer_while(request, |_, _| ())
    }

    /// Makes an answer, calling `at_event` with the handle at each event of it.
    pub fn answer_while(&mut self, request: Request, mut at_event: impl FnMut(&EngineHandle, &Event)) -> End {
        self.handle.send(Command::Generate(Box::new(request)));
        let mut text = String::new();
        loop {
            let event = self.events.blocking_recv().expect("the engine lives");
            at_event(&self.handle, &event);
            match event {
                Event::Text { text: piece, .. } => text += &piece,
                Event::Finished { reason, stats, .. } => return End::Finished(text, reason, stats),
                Event::Broken { failure, .. } => return End::Broken(failure),
                _ => {}
            }
        }
    }
}

pub fn finished(end: End) -> (String, FinishReason, Box<GenerationStats>) {
    match end {
        End::Finished(text, reason, stats) => (text, reason, stats),
        End::Broken(failure) => panic!("{failure:?}"),
    }
}
