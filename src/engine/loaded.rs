//! A loaded model with all that an answer needs: tokenizer, template, and the memory plan.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::figures::{FastestToken, Figures};
use super::ledger::{Costs, Ledger};
use super::model_name::model_name;
use super::protocol::{
    Budget, Event, Failure, FailureKind, KernelKind, LayerTensor, LoadRequest, ModelInfo, Residency,
};
use crate::gguf::{Gguf, TensorType};
use crate::kernels::{self, Arithmetic, Kernels};
use crate::model::{Model, ModelOptions};
use crate::sanitize::sanitize;
use crate::tokenizer::{ChatTemplate, Tokenizer};
use crate::weights::calibrate::{self, Calibration, DeviceSpeeds};
use crate::weights::{ContextRequest, Plan, StoreOptions};

/// Context of a model when nothing else is asked for, at most.
pub const AUTOMATIC_CONTEXT: u32 = 4096;

/// A longer name of a model is cut: it is shown in a line of its own.
const MOST_NAME_CHARS: usize = 80;

/// How long a disk is measured when it is first met.
const CALIBRATION_TIME: Duration = Duration::from_millis(300);

/// The model in use.
pub struct Loaded {
    pub request: LoadRequest,
    pub info: ModelInfo,
    pub model: Model,
    pub tokenizer: Tokenizer,
    pub template: ChatTemplate,
    pub ledger: Ledger,
    /// What the disk and the memory can do, as far as it is known.
    pub speeds: DeviceSpeeds,
    pub fastest: FastestToken,
    /// The tokens in the KV cache, in order.
    pub cached: Vec<u32>,
}

impl Loaded {
    /// Opens the model and makes the first plan; says on the way how far it is.
    ///
    /// # Errors
    /// The file cannot be read or run, or the budget is under the least that runs.
    pub fn open(request: LoadRequest, tell: &mut dyn FnMut(Event)) -> Result<Self, Failure> {
        let started = Instant::now();
        let loading = |what, fraction| Event::Loading { what, fraction };
        tell(loading("reading the header", 0.0));
        let gguf = Gguf::open(&request.path).map_err(load_failure)?;
        let context = request.context.unwrap_or(AUTOMATIC_CONTEXT);
        let arithmetic = match (request.kernel, request.residency) {
            (KernelKind::Int8, Residency::Quantized) => Arithmetic::Int8,
            (KernelKind::Fast, Residency::Quantized) => Arithmetic::Fast,
            _ => Arithmetic::Exact,
        };
        let threads = request.threads.unwrap_or_else(kernels::pool::default_threads);
        let options = ModelOptions {
            kernels: Kernels::new(arithmetic),
            threads,
            kv: request.kv.into(),
            context: context as usize,
            store: StoreOptions {
                source: request.source.into(),
                residency: request.residency.into(),
                disk_limit: request.disk_limit,
                ..StoreOptions::default()
            },
        };
        let mut model = Model::open(&gguf, options).map_err(load_failure)?;
        tell(loading("reading the vocabulary", 0.3));
        let tokenizer = Tokenizer::from_gguf(&gguf).map_err(load_failure)?;
        let template = ChatTemplate::from_gguf(&gguf, &tokenizer);
        tell(loading("planning memory", 0.8));
        gguf.drop_file_cache();
        let info = describe(&gguf, &request, &model, &tokenizer, &template, threads);
        let paths: Vec<PathBuf> = gguf.parts().iter().map(|part| part.path.clone()).collect();
        drop(gguf);

        let hp = model.hyperparameters();
        if let Some(context) = request.context
            && context > hp.context_trained
        {
            return Err(Failure {
                kind: FailureKind::Load,
                message: format!(
                    "a context of {context} is more than the {} that the model was made for; ask for less with --ctx",
                    hp.context_trained
                ),
                shortfall: None,
            });
        }
        let context = match request.context {
            Some(context) => ContextRequest::Explicit(context),
            None => {
                let most = hp.context_trained.min(AUTOMATIC_CONTEXT);
                ContextRequest::Automatic { least: request.least_context.min(most), most }
            }
        };
        let costs = Costs::of(&model);
        let mut ledger = Ledger::new(request.budget, context, request.prefill_batch, costs);
        ledger.measure_base(&model);
        let plan = ledger.plan(model.store().table(), 0, 1)?;
        ledger.adopt(plan, model.store_mut());
        let streams = ledger.plan_in_force().is_some_and(Plan::streams);
        let speeds = if streams { device_speeds(&request, &paths, &model, threads) } else { DeviceSpeeds::default() };
        let mut loaded = Self {
            info: ModelInfo { context: ledger.context(), context_most: ledger.most_context(), ..info },
            request,
            model,
            tokenizer,
            template,
            ledger,
            speeds,
            fastest: FastestToken::default(),
            cached: Vec::new(),
        };
        loaded.model.set_batch(1, 1);
        loaded.info.load_s = started.elapsed().as_secs_f64();
        Ok(loaded)
    }

    /// Changes the budget while no answer is made.
    ///
    /// # Errors
    /// The budget is under the least that runs; the old one stays.
    pub fn set_budget(&mut self, budget: Budget) -> Result<(), Failure> {
        let used = self.model.cache().positions() as u32;
        let old = self.ledger.asked();
        self.ledger.ask(budget);
        self.model.cache_mut().trim();
        self.model.set_batch(1, 1);
        match self.ledger.plan(self.model.store().table(), used, 1) {
            Ok(plan) => {
                self.ledger.adopt(plan, self.model.store_mut());
                self.info.context = self.ledger.context();
                Ok(())
            }
            Err(failure) => {
                self.ledger.ask(old);
                Err(failure)
            }
        }
    }

    /// Keeps the first `positions` of the conversation, or fewer where the model cannot go back to just there, and gives
    /// back the pages of the others. What is kept.
    pub fn rewind(&mut self, positions: usize) -> usize {
        let cache = self.model.cache_mut();
        let kept = cache.rewind(positions);
        cache.trim();
        self.cached.truncate(kept);
        kept
    }

    /// Forgets the conversation and gives its memory to the weights.
    pub fn reset(&mut self) {
        self.rewind(0);
        // With the conversation its text is gone.
        self.ledger.measure_base_anew(&self.model);
        if let Ok(plan) = self.ledger.plan(self.model.store().table(), 0, 1) {
            self.ledger.adopt(plan, self.model.store_mut());
        }
    }

    /// Fits the KV cache, the buffers and the pins to `used` positions of context and batches for `prompt` more
    /// positions to be read.
    ///
    /// # Errors
    /// That much does not fit the budget.
    pub fn make_room(&mut self, used: u32, prompt: u32) -> Result<(), Failure> {
        self.fit(used, prompt, 0)
    }

    /// The same, but what the KV cache is to grow into is lent to pins: passes have to call it in as they fill it
    /// ([`WeightStore::call_in`](crate::weights::WeightStore::call_in)).
    ///
    /// # Errors
    /// That much does not fit the budget.
    pub fn make_room_to_grow(&mut self, used: u32, prompt: u32) -> Result<(), Failure> {
        let growth = self.ledger.kv_bytes(used).saturating_sub(self.model.cache().bytes() as u64);
        self.fit(used, prompt, growth)
    }

    fn fit(&mut self, used: u32, prompt: u32, lent_bytes: u64) -> Result<(), Failure> {
        self.ledger.measure_base(&self.model);
        let mut plan = self.ledger.plan(self.model.store().table(), used, prompt);
        if plan.is_err() {
            // Perhaps for the sake of what is held no longer: a long prompt's text, another chat.
            self.ledger.measure_base_anew(&self.model);
            plan = self.ledger.plan(self.model.store().table(), used, prompt);
        }
        let mut plan = plan?;
        plan.placement.lent_bytes = lent_bytes;
        let batch = plan.batch.min(prompt).max(1) as usize;
        if batch < self.model.batch() {
            self.model.set_batch(batch, 1);
        }
        // Pins go before the memory that takes their place is asked for.
        self.ledger.adopt(plan, self.model.store_mut());
        self.model.set_batch(batch, 1);
        Ok(())
    }

    /// Publishes what the ledger and the store know now.
    pub fn snapshot_into(&self, figures: &mut Figures) {
        let cache = self.model.cache();
        figures.take(self.model.store(), &self.ledger, cache.bytes() as u64, cache.positions() as u32);
    }
}

/// Speed of the disk that holds the model: measured once a device, and no faster than the throttle lets it be.
fn device_speeds(request: &LoadRequest, paths: &[PathBuf], model: &Model, threads: usize) -> DeviceSpeeds {
    let calibration = Calibration {
        paths,
        table: model.store().table(),
        source: model.store().source(),
        readers: StoreOptions::default().readers,
        threads,
        disk_time: CALIBRATION_TIME,
        // The budget has no room for more than the caches hold.
        memory_bytes: 0,
    };
    // A disk that cannot be measured will fail where somebody waits for it, and say so.
    let speeds = calibrate::device_speeds(&calibration, request.speeds_file.as_deref()).unwrap_or_default();
    let limit = request.disk_limit.map_or(f64::INFINITY, |limit| limit as f64);
    DeviceSpeeds { disk_bytes_s: speeds.disk_bytes_s.min(limit), ..speeds }
}

/// A failure to load, in the error's words.
fn load_failure(error: impl std::fmt::Display) -> Failure {
    Failure { kind: FailureKind::Load, message: sanitize(&error.to_string()).into_owned(), shortfall: None }
}

/// A name as it stands in a line.
fn shown(name: &str) -> String {
    sanitize(name).replace('\n', " ").chars().take(MOST_NAME_CHARS).collect()
}

fn describe(
    gguf: &Gguf,
    request: &LoadRequest,
    model: &Model,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    threads: usize,
) -> ModelInfo {
    let hp = model.hyperparameters();
    let own_name = gguf.metadata().str("general.name").filter(|name| !name.trim().is_empty());
    let mut by_type: Vec<(TensorType, u64)> = Vec::new();
    for tensor in gguf.tensors() {
        match by_type.iter_mut().find(|(ty, _)| *ty == tensor.ty) {
            Some((_, bytes)) => *bytes += tensor.bytes,
            None => by_type.push((tensor.ty, tensor.bytes)),
        }
    }
    let most = by_type.iter().max_by_key(|(_, bytes)| *bytes).map_or("", |(ty, _)| ty.name());
    let quantization = file_type(gguf).unwrap_or(most);
    ModelInfo {
        path: request.path.clone(),
        name: shown(&model_name(&request.path, own_name, quantization)),
        own_name: own_name.map(shown),
        architecture: hp.arch.name.to_owned(),
        quantization: quantization.to_owned(),
        layers: hp.layers as u32,
        parameters: gguf.tensors().iter().map(|t| t.elements()).sum(),
        weights_bytes: gguf.tensors().iter().map(|t| t.bytes).sum(),
        touched_bytes_per_token: model.touched_bytes_per_token(),
        context: hp.context_trained,
        context_most: hp.context_trained,
        context_trained: hp.context_trained,
        vocabulary: hp.vocabulary as u32,
        threads: threads as u32,
        kernel: request.kernel,
        isa: model.kernels().isa.name(),
        source: model.store().source().into(),
        kv: request.kv,
        experts: hp.experts.map_or(0, |e| e.count as u32),
        experts_used: hp.experts.map_or(0, |e| e.used as u32),
        has_chat_template: !template.is_fallback(),
        thinking: template.thinking_switch(),
        load_s: 0.0,
        warnings: tokenizer
            .warnings()
            .iter()
            .chain(template.warnings())
            .map(|warning| sanitize(warning).into_owned())
            .collect(),
        layer_tensors: layer_tensors(gguf, hp.layers).into(),
    }
}

/// The tensors of each block, and of the head behind the last one: where the output is tied, the embedding is the head.
fn layer_tensors(gguf: &Gguf, blocks: usize) -> Vec<Vec<LayerTensor>> {
    let tied = gguf.tensor("output.weight").is_none();
    let mut layers = vec![Vec::new(); blocks + 1];
    for tensor in gguf.tensors() {
        let of_block = tensor.name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let (layer, name) = match of_block {
            Some((block, name)) => match block.parse::<usize>() {
                Ok(block) if block < blocks => (block, name),
                _ => continue,
            },
            None if tensor.name.starts_with("output") || (tied && tensor.name == "token_embd.weight") => {
                (blocks, tensor.name.as_str())
            }
            None => continue,
        };
        layers[layer].push(LayerTensor {
            name: shown(name),
            ty: tensor.ty.name(),
            shape: tensor.shape.clone(),
            bytes: tensor.bytes,
        });
    }
    layers
}

/// The mix that `general.file_type` names, as llama.cpp's `llama_ftype` numbers it.
fn file_type(gguf: &Gguf) -> Option<&'static str> {
    Some(match gguf.metadata().u64("general.file_type")? {
        2 => "Q4_0",
        3 => "Q4_1",
        7 => "Q8_0",
        8 => "Q5_0",
        9 => "Q5_1",
        10 => "Q2_K",
        11 => "Q3_K_S",
        12 => "Q3_K_M",
        13 => "Q3_K_L",
        14 => "Q4_K_S",
        15 => "Q4_K_M",
        16 => "Q5_K_S",
        17 => "Q5_K_M",
        18 => "Q6_K",
        25 => "IQ4_NL",
        30 => "IQ4_XS",
        32 => "BF16",
        _ => return None,
    })
}
