//! States and key presses for tests.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crossterm::event::KeyEvent;

use super::app::{App, Model};
use super::glyphs::{Glyphs, UNICODE};
use super::keymap::{Keymap, parse_key};
use super::message::{Effect, Job, Msg, Reply};
use super::options::{CatalogEntry, Resume, TuiOptions};
use super::theme::Theme;
use super::update::update;
use crate::engine::protocol::*;

pub(super) fn options() -> TuiOptions {
    TuiOptions {
        load: LoadRequest {
            path: "model.gguf".into(),
            budget: Budget::Auto,
            threads: None,
            context: None,
            kernel: KernelKind::default(),
            residency: Residency::default(),
            source: SourceKind::default(),
            kv: KvType::default(),
            prefill_batch: None,
            disk_limit: None,
            least_context: 512,
            speeds_file: None,
        },
        model: None,
        system: None,
        sampling: Sampling::default(),
        stop: Vec::new(),
        max_tokens: None,
        thinking: None,
        resume: Resume::Fresh,
        theme: "default".into(),
        ascii: false,
        mouse: false,
        keys: Default::default(),
        sessions_dir: None,
        history_file: None,
        catalog: None,
    }
}

pub(super) fn app() -> App {
    looking(Theme::named("default").unwrap(), UNICODE)
}

pub(super) fn looking(theme: Theme, glyphs: Glyphs) -> App {
    App::new(&options(), theme, glyphs, false, Keymap::default())
}

pub(super) fn info() -> ModelInfo {
    ModelInfo {
        name: "SmolLM2-135M-Instruct".into(),
        architecture: "llama".into(),
        quantization: "Q4_1".into(),
        layers: 30,
        weights_bytes: 98_000_000,
        touched_bytes_per_token: 97_000_000,
        context: 4096,
        context_most: 4096,
        threads: 2,
        isa: "avx512-vnni",
        layer_tensors: vec![tensors(); 31].into(),
        ..ModelInfo::default()
    }
}

/// A layer's tensors, with the names and sizes that a small llama has.
fn tensors() -> Vec<LayerTensor> {
    [
        ("attn_norm.weight", "F32", vec![576], 2304),
        ("ffn_down.weight", "Q4_1", vec![1536, 576], 552_960),
        ("ffn_gate.weight", "Q4_1", vec![576, 1536], 552_960),
        ("ffn_up.weight", "Q4_1", vec![576, 1536], 552_960),
        ("ffn_norm.weight", "F32", vec![576], 2304),
        ("attn_k.weight", "Q4_1", vec![576, 192], 69_120),
        ("attn_output.weight", "Q4_1", vec![576, 576], 207_360),
        ("attn_q.weight", "Q4_1", vec![576, 576], 207_360),
        ("attn_v.weight", "Q4_1", vec![576, 192], 69_120),
    ]
    .map(|(name, ty, shape, bytes)| LayerTensor { name: name.into(), ty, shape, bytes })
    .to_vec()
}

/// A model is loaded, with figures as they are in mid-answer.
pub(super) fn ready(app: &mut App) {
    app.model = Model::Ready(Box::new(info()));
    app.snapshot = Arc::new(figures());
}

pub(super) fn figures() -> Snapshot {
    let layer = |i: u64| LayerFigures {
        state: match i {
            16 => LayerState::Computing,
            17..20 => LayerState::Loading,
            _ => LayerState::Cold,
        },
        bytes: 3_000_000,
        pinned_bytes: match i % 5 {
            0 => 3_000_000,
            3 => 1_000_000,
            _ => 0,
        },
        read_us: 1100,
        wait_us: (i % 4 * 100) as u32,
        compute_us: 900 + i as u32,
        mean_read_us: 1050,
        mean_wait_us: 40,
        mean_compute_us: 880,
    };
    Snapshot {
        phase: Phase::Idle,
        generation: None,
        memory: MemoryFigures {
            budget: Budget::Bytes(96 << 20),
            budget_bytes: 96 << 20,
            least_bytes: 42 << 20,
            least_context: 512,
            // 42 MiB with 512 tokens, 75 MiB with 4096.
            least_cost: LeastCost {
                bare_bytes: (42 << 20) - 16 * (300 << 10) - (1 << 20),
                position_bytes: 8 << 10,
                batch: 128,
                kv: KvCost { page_positions: 32, page_bytes: 300 << 10 },
            },
            full_bytes: 140 << 20,
            pinned_bytes: 38 << 20,
            ring_bytes: 8 << 20,
            kv_bytes: 3 << 20,
            scratch_bytes: 2 << 20,
            base_bytes: 11 << 20,
            rss_bytes: 62 << 20,
            peak_rss_bytes: 63 << 20,
            file_cache_bytes: 400 << 10,
            available_bytes: 5 << 30,
            ..MemoryFigures::default()
        },
        layers: (0..31).map(layer).collect(),
        speed: SpeedFigures {
            now_tok_s: 14.2,
            mean_tok_s: 13.9,
            settled_tok_s: 13.9,
            prefill_tok_s: 322.0,
            recent_token_ms: (0..40).map(|i| 60.0 + (i % 7) as f32 * 8.0).collect(),
            disk_bytes_s: 812_000_000,
            disk_calibrated_bytes_s: 1_900_000_000,
            streamed_bytes_per_token: 50_000_000,
            bound_tok_s: 15.1,
            limiter: Limiter::Disk,
            generated_tokens: 42,
            ..SpeedFigures::default()
        },
        experts: None,
        context_used: 212,
        context: 4096,
    }
}

pub(super) fn catalog() -> Vec<CatalogEntry> {
    vec![
        CatalogEntry {
            name: "smollm2-135m".into(),
            title: "SmolLM2 135M Instruct".into(),
            quantization: "Q4_1".into(),
            bytes: 98_600_000,
            licence: "Apache-2.0".into(),
            installed: None,
            default: true,
            part_bytes: 0,
        },
        CatalogEntry {
            name: "qwen2.5-coder-0.5b".into(),
            title: "Qwen2.5 Coder 0.5B Instruct".into(),
            quantization: "Q4_K_M".into(),
            bytes: 491_000_000,
            licence: "Apache-2.0".into(),
            installed: Some("/models/qwen2.5-coder-0.5b.gguf".into()),
            default: false,
            part_bytes: 0,
        },
    ]
}

pub(super) fn shelf() -> Reply {
    Reply::Catalog { entries: catalog(), available_bytes: 2 << 30 }
}

pub(super) fn press(app: &mut App, key: &str) -> Vec<Effect> {
    let key = parse_key(key).unwrap();
    update(app, Msg::Key(KeyEvent::new(key.code, key.modifiers)))
}

/// Types a line and sends it; what is kept of it for the history is left out of what comes of it.
pub(super) fn enter(app: &mut App, line: &str) -> Vec<Effect> {
    type_in(app, line);
    let mut effects = press(app, "enter");
    effects.retain(|e| !matches!(e, Effect::Job(Job::AddHistory(_))));
    effects
}

pub(super) fn type_in(app: &mut App, text: &str) {
    for c in text.chars() {
        update(app, Msg::Key(KeyEvent::from(crossterm::event::KeyCode::Char(c))));
    }
}

pub(super) fn engine(app: &mut App, event: Event) -> Vec<Effect> {
    update(app, Msg::Engine(event))
}

/// The request among the effects.
pub(super) fn request(effects: &[Effect]) -> Option<&Request> {
    effects.iter().find_map(|e| match e {
        Effect::Send(Command::Generate(request)) => Some(request.as_ref()),
        _ => None,
    })
}

/// The engine answers the request under way with `text`.
pub(super) fn answer(app: &mut App, text: &str, reason: FinishReason) -> Vec<Effect> {
    let id = app.answer.as_ref().unwrap().id;
    engine(app, Event::Started { id, prompt_tokens: 20, reused_tokens: 0 });
    engine(app, Event::Text { id, text: text.into() });
    let stats = GenerationStats {
        prompt_tokens: 20,
        generated_tokens: 7,
        ttft_s: 0.8,
        decode_tok_s: 14.2,
        decode_streamed_bytes: 12_687_769,
        ..GenerationStats::default()
    };
    engine(app, Event::Finished { id, reason, stats: Box::new(stats) })
}
