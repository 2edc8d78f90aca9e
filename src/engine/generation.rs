//! One answer: prompt to tokens, prefill of what the cache does not hold, then a token at a time.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::channels::Channels;
use super::figures::{Compute, Figures};
use super::handle::EngineEnd;
use super::ledger::Ledger;
use super::loaded::Loaded;
use super::protocol::{Budget, Event, Failure, FailureKind, FinishReason, GenerationStats, Message, Prompt, Request};
use super::settled::{Moment, Settled};
use super::text::{AnswerText, Piece};
use crate::kernels::Cancel;
use crate::model::{Hooks, KvGrowth, ModelError, Op, Want};
use crate::sampler::Sampler;
use crate::tokenizer::{RenderOptions, TemplateMessage, Thinking, is_thinking};
use crate::weights::{Counters, WeightStore};
use crate::words::counted;

/// Tokens after which what was read ahead of the answer no longer counts.
const SETTLED_TOKENS: f64 = 4.0;

/// How an answer ended.
pub enum Outcome {
    Finished(FinishReason, GenerationStats),
    Broken(Failure),
}

/// Makes one answer, telling of it as it grows.
pub fn generate(
    loaded: &mut Loaded,
    request: &Request,
    cancel: &Cancel,
    end: &EngineEnd,
    figures: &mut Figures,
) -> Outcome {
    let mut run = Generation {
        request,
        cancel,
        end,
        figures,
        started: Instant::now(),
        stats: GenerationStats::default(),
        text: answer_text(loaded, request),
    };
    let result = run.answer(loaded);
    run.figures.finish_answer();
    match result {
        Ok(reason) => Outcome::Finished(reason, run.stats),
        Err(Stop::Cancelled) => {
            run.flush_text();
            Outcome::Finished(FinishReason::Cancelled, run.stats)
        }
        Err(Stop::Failed(failure)) => {
            run.flush_text();
            Outcome::Broken(failure)
        }
    }
}

/// The answer's text to be: what ends it, and whether it goes on with what is there.
fn answer_text(loaded: &Loaded, request: &Request) -> AnswerText {
    let mut stops = request.stop.clone();
    if matches!(request.prompt, Prompt::Chat(_) | Prompt::Continue(_)) {
        stops.extend(loaded.template.stops().iter().map(|&stop| stop.to_owned()));
    }
    let mut text = AnswerText::new(stops);
    let template = &loaded.template;
    if matches!(request.prompt, Prompt::Raw(_) | Prompt::Continue(_)) || template.is_completion() {
        text.goes_on();
    }
    match &request.prompt {
        Prompt::Chat(_) if template.has_channels() => text.in_channels(Channels::default()),
        Prompt::Chat(_) => {
            if let Some(opening) = template.opening(request.thinking) {
                text.opens_with(&opening);
            }
        }
        Prompt::Continue(messages) if template.has_channels() => {
            let begun = messages.last().map_or("", |message| &message.content);
            text.in_channels(Channels::within(is_thinking(begun)));
        }
        _ => {}
    }
    text
}

/// Why an answer did not come to its own end.
enum Stop {
    Cancelled,
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

struct Generation<'a> {
    request: &'a Request,
    cancel: &'a Cancel,
    end: &'a EngineEnd,
    figures: &'a mut Figures,
    started: Instant,
    stats: GenerationStats,
    text: AnswerText,
}

impl Generation<'_> {
    fn answer(&mut self, loaded: &mut Loaded) -> Result<FinishReason, Stop> {
        assert!(!crate::fault::is_wanted("engine"), "a fault that was asked for");
        let ids = prompt_tokens(loaded, self.request)?;
        let most = self.request.max_tokens.unwrap_or(u32::MAX);
        // The last token of an answer is never run, so its position is not needed.
        let needed = |most: u32| (ids.len() as u32).saturating_add(most.saturating_sub(1));
        loaded.ledger.need_context(self.request.max_tokens.map_or(0, needed));
        let reused = loaded.rewind(common_prefix(&loaded.cached, &ids).min(ids.len() - 1));
        // Room for the first batch also settles the context.
        let reused = match loaded.make_room(reused as u32 + 1, 1) {
            Ok(()) => reused,
            // The budget does not hold what is known already, and one position more: the context that it has room for
            // says what of it can be sent.
            Err(_) if reused > 0 => {
                let reused = loaded.rewind(0);
                loaded.make_room(1, 1)?;
                reused
            }
            Err(failure) => return Err(failure.into()),
        };
        let context = loaded.ledger.context() as usize;
        if ids.len() > context {
            return Err(context_full(&counted(ids.len(), "token"), context, loaded.info.context_trained).into());
        }
        self.stats.prompt_tokens = ids.len() as u32;
        self.stats.reused_tokens = reused as u32;
        self.send(Event::Started {
            id: self.request.id,
            prompt_tokens: ids.len() as u32,
            reused_tokens: reused as u32,
        });
        self.figures.begin_answer(self.request.id, ids.len(), reused);

        self.prefill(loaded, &ids)?;
        self.decode(loaded, &ids, most)
    }

    /// Reads the prompt's tokens that the cache does not hold, a batch at a time.
    fn prefill(&mut self, loaded: &mut Loaded, ids: &[u32]) -> Result<(), Stop> {
        let started = Instant::now();
        let streamed = loaded.model.store().counters().streamed_bytes;
        while loaded.cached.len() < ids.len() {
            let rest = &ids[loaded.cached.len()..];
            loaded.make_room_to_grow(ids.len() as u32, rest.len() as u32)?;
            let batch = &rest[..rest.len().min(loaded.model.batch())];
            let want = if batch.len() == rest.len() { Want::Last } else { Want::Nothing };
            if self.pass(loaded, batch, want)? {
                self.stats.prefill_passes += 1;
            }
        }
        let read = ids.len() - self.stats.reused_tokens as usize;
        self.stats.prefill_s = started.elapsed().as_secs_f64();
        self.stats.prefill_tok_s = read as f64 / self.stats.prefill_s;
        self.stats.prefill_streamed_bytes = loaded.model.store().counters().streamed_bytes - streamed;
        self.stats.ttft_s = self.started.elapsed().as_secs_f64();
        self.figures.prefill_done(self.stats.prefill_tok_s);
        Ok(())
    }

    fn decode(&mut self, loaded: &mut Loaded, ids: &[u32], most: u32) -> Result<FinishReason, Stop> {
        let started = Instant::now();
        let before = loaded.model.store().counters();
        let mut settled = Settled::new(loaded.ledger.changes(), moment(loaded, started, 0));
        loaded.model.times_mut().reset();
        let mut sampler = Sampler::new(&self.request.sampling, loaded.info.vocabulary as usize);
        let mut reason = FinishReason::Length;
        let mut recent: Vec<u32> = Vec::with_capacity(ids.len() + most.min(4096) as usize);
        recent.extend_from_slice(ids);
        while self.stats.generated_tokens < most {
            let token_started = Instant::now();
            let id = sampler.sample(loaded.model.logits_mut(), &recent);
            loaded.model.times_mut().add(Op::Sample, token_started);
            if self.request.stop_at_end && loaded.tokenizer.is_end(id) {
                reason = FinishReason::Stop;
                break;
            }
            self.stats.generated_tokens += 1;
            recent.push(id);
            match self.text.push(&loaded.tokenizer, id) {
                Piece::Text(text) => self.send_text(text),
                Piece::Stop(text) => {
                    self.send_text(text);
                    reason = FinishReason::Stop;
                    break;
                }
            }
            if self.stats.generated_tokens == most {
                break;
            }
            let waited_us = loaded.model.store().counters().wait_us;
            let next = loaded.cached.len() + 1;
            if next > loaded.ledger.context() as usize {
                reason = FinishReason::ContextFull;
                let context = loaded.ledger.context();
                if context < loaded.ledger.most_context() {
                    self.stats.context_by_budget = context;
                }
                break;
            }
            match self.step(loaded, id) {
                Ok(()) => {}
                // The program has grown into what was left for the context.
                Err(Stop::Failed(failure)) if failure.kind == FailureKind::Budget => {
                    reason = FinishReason::ContextFull;
                    self.stats.context_by_budget = loaded.cached.len() as u32;
                    break;
                }
                Err(stop) => return Err(stop),
            }
            let waited_us = loaded.model.store().counters().wait_us - waited_us;
            loaded.fastest.token(token_started.elapsed().saturating_sub(Duration::from_micros(waited_us)));
            self.note_decode(loaded, started, &before);
            self.note_bound(loaded, &mut settled);
            self.figures.token(token_started.elapsed(), self.stats.decode_tok_s);
        }
        self.note_decode(loaded, started, &before);
        self.figures.set_op_times(loaded.model.times_mut(), self.stats.generated_tokens.saturating_sub(1));
        self.flush_text();
        Ok(reason)
    }

    /// Runs the token that was chosen last.
    fn step(&mut self, loaded: &mut Loaded, id: u32) -> Result<(), Stop> {
        if self.stats.generated_tokens == 1 {
            // The prompt's logits are used: what its batch took goes to the weights now, not with the next page.
            loaded.make_room(loaded.cached.len() as u32 + 1, 1)?;
        }
        while !self.pass(loaded, &[id], Want::Last)? {}
        Ok(())
    }

    /// Keeps the answer's figures current, so that they are right whenever it ends.
    fn note_decode(&mut self, loaded: &mut Loaded, started: Instant, before: &Counters) {
        let now = loaded.model.store().counters();
        // The first token came out of the prefill.
        let passes = loaded.cached.len() as u32 - self.stats.prompt_tokens;
        self.stats.decode_s = started.elapsed().as_secs_f64();
        self.stats.decode_tok_s = if passes == 0 { 0.0 } else { f64::from(passes) / self.stats.decode_s };
        self.stats.decode_streamed_bytes = now.streamed_bytes - before.streamed_bytes;
        self.stats.decode_expert_uses = now.expert_uses - before.expert_uses;
        self.stats.decode_expert_hits = now.expert_hits - before.expert_hits;
        let waited_s = (now.wait_us - before.wait_us) as f64 * 1e-6;
        self.stats.stall_fraction = waited_s / self.stats.decode_s.max(1e-9);
    }

    /// Keeps the bound current, which is that of the budget in force.
    fn note_bound(&mut self, loaded: &mut Loaded, settled: &mut Settled) {
        let passes = loaded.cached.len() as u32 - self.stats.prompt_tokens;
        let now = moment(loaded, Instant::now(), passes);
        let Some(means) = settled.means(loaded.ledger.changes(), now) else { return };
        // A disk that does better than when it was measured, or was not measured, is as good as it has been: of late, and
        // while it was at work.
        if f64::from(means.passes) >= SETTLED_TOKENS && means.streamed_bytes > 0.0 {
            let counters = loaded.model.store().counters();
            let reached = means.streamed_bytes / means.pass_s;
            let seen = counters.read_bytes as f64 * 1e6 / counters.disk_busy_us.max(1) as f64;
            loaded.speeds.disk_bytes_s = loaded.speeds.disk_bytes_s.max(reached).max(seen);
        }
        let compute = match loaded.fastest.compute_s() {
            Some(least_s) => Compute::Least(least_s),
            None => Compute::Mean(means.compute_s),
        };
        let touched = loaded.info.touched_bytes_per_token;
        self.figures.set_bound(loaded.speeds, means.streamed_bytes, touched, compute);
        self.figures.set_settled(1.0 / means.pass_s.max(1e-9));
    }

    /// Runs one batch. `false` when a new budget broke the pass off: to be tried again with new room.
    fn pass(&mut self, loaded: &mut Loaded, batch: &[u32], want: Want) -> Result<bool, Stop> {
        let first = loaded.cached.len();
        if !loaded.ledger.has_room(first as u32 + batch.len() as u32) || loaded.ledger.gives_way() {
            loaded.make_room((first + batch.len()) as u32, batch.len() as u32)?;
        }
        // The pass makes room for its positions before anything else.
        let kv_bytes = loaded.ledger.kv_bytes((first + batch.len()) as u32).max(loaded.model.cache().bytes() as u64);
        let growth = loaded.model.cache().growth(first + batch.len());
        let planned = loaded.ledger.plan_in_force().map_or(0, |plan| plan.kv_bytes);
        let mut hooks = PassHooks {
            growth,
            later_bytes: planned.saturating_sub(kv_bytes),
            layer: None,
            ledger: &mut loaded.ledger,
            figures: self.figures,
            end: self.end,
            used: (first + batch.len()) as u32,
            batch: batch.len() as u32,
            first_layer_at: Instant::now(),
            layers: loaded.info.layers,
            kv_bytes,
            buffer_bytes: loaded.model.buffer_bytes() as u64,
        };
        let result = loaded.model.forward(batch, want, &mut hooks, self.cancel);
        match result {
            Ok(()) => {
                loaded.cached.extend_from_slice(batch);
                if self.figures.is_due() {
                    loaded.snapshot_into(self.figures);
                    self.figures.publish(self.end);
                }
                Ok(true)
            }
            Err(ModelError::Cancelled(_)) => Err(Stop::Cancelled),
            Err(ModelError::Interrupted) => {
                loaded.make_room((first + batch.len()) as u32, batch.len() as u32)?;
                Ok(false)
            }
            Err(error) => {
                Err(Stop::Failed(Failure { kind: FailureKind::Io, message: error.to_string(), shortfall: None }))
            }
        }
    }

    fn flush_text(&mut self) {
        let text = self.text.finish();
        self.send_text(text);
    }

    fn send_text(&self, text: String) {
        if !text.is_empty() {
            self.send(Event::Text { id: self.request.id, text });
        }
    }

    fn send(&self, event: Event) {
        // A front end that is gone cancels by other ways.
        let _ = self.end.events.send(event);
    }
}

/// What happens between the extents of a pass: budgets and figures.
struct PassHooks<'a> {
    ledger: &'a mut Ledger,
    figures: &'a mut Figures,
    end: &'a EngineEnd,
    used: u32,
    batch: u32,
    first_layer_at: Instant,
    layers: u32,
    kv_bytes: u64,
    buffer_bytes: u64,
    /// What the pass adds to the KV cache, and what passes after it will.
    growth: KvGrowth,
    later_bytes: u64,
    /// The layer that was come to last.
    layer: Option<usize>,
}

impl Hooks for PassHooks<'_> {
    fn at_extents(&mut self, store: &mut WeightStore, layer: usize) -> ControlFlow<()> {
        if self.growth.groups > 0 && self.layer.replace(layer) != Some(layer) {
            store.call_in(self.later_bytes + self.growth.free_at(layer) as u64);
        }
        if let Some(budget) = self.end.controls.take_budget()
            && self.change_budget(store, budget).is_break()
        {
            return ControlFlow::Break(());
        }
        if self.figures.is_due() {
            if self.batch > 1 {
                let share = layer as f32 / (self.layers + 1) as f32;
                let spent = self.first_layer_at.elapsed().as_secs_f32();
                let left = if share > 0.0 { spent / share - spent } else { 0.0 };
                self.figures.prefill_progress(self.used - self.batch, self.batch, layer as u32, share, left);
            }
            // What grew since the last plan is taken from the pins at once.
            if self.ledger.measure(store, self.kv_bytes, self.buffer_bytes)
                && let Ok(plan) = self.ledger.plan_in_pass(store.table(), self.used, self.batch)
            {
                self.ledger.adopt(plan, store);
            }
            self.figures.take(store, self.ledger, self.kv_bytes, self.used - self.batch);
            self.figures.publish(self.end);
        }
        ControlFlow::Continue(())
    }
}

impl PassHooks<'_> {
    fn change_budget(&mut self, store: &mut WeightStore, budget: Budget) -> ControlFlow<()> {
        let old = self.ledger.asked();
        self.ledger.measure(store, self.kv_bytes, self.buffer_bytes);
        self.ledger.ask(budget);
        let (flow, bytes) = match self.ledger.plan_in_pass(store.table(), self.used, self.batch) {
            Ok(plan) => {
                let bytes = plan.budget_bytes;
                self.ledger.adopt(plan, store);
                (ControlFlow::Continue(()), bytes)
            }
            Err(failure) => match self.ledger.plan(store.table(), self.used, self.batch) {
                // A smaller batch fits: the pass begins again with one.
                Ok(plan) if self.batch > 1 => (ControlFlow::Break(()), plan.budget_bytes),
                _ => {
                    self.ledger.ask(old);
                    let _ = self.end.events.send(Event::Failed(failure));
                    return ControlFlow::Continue(());
                }
            },
        };
        let _ = self.end.events.send(Event::BudgetSet { budget, bytes });
        flow
    }
}

/// How far an answer is.
fn moment(loaded: &Loaded, at: Instant, passes: u32) -> Moment {
    let counters = loaded.model.store().counters();
    Moment { at, passes, streamed_bytes: counters.streamed_bytes, waited_us: counters.wait_us }
}

/// The prompt as token ids, with the BOS that the model wants.
fn prompt_tokens(loaded: &Loaded, request: &Request) -> Result<Vec<u32>, Failure> {
    let tokenizer = &loaded.tokenizer;
    // What cannot fit is refused before its rendering and its tokens take memory.
    let most = loaded.ledger.most_context() as usize;
    let least_tokens = text_bytes(&request.prompt) / tokenizer.longest_token_bytes();
    if least_tokens > most {
        return Err(context_full(&format!("at least {least_tokens} tokens"), most, loaded.info.context_trained));
    }
    let mut ids = match &request.prompt {
        Prompt::Tokens(ids) => ids.clone(),
        Prompt::Raw(text) => with_bos(loaded, tokenizer.encode(text, true)),
        Prompt::Chat(messages) => with_bos(loaded, render(loaded, messages, false, request.thinking)?),
        Prompt::Continue(messages) => with_bos(loaded, render(loaded, messages, true, request.thinking)?),
    };
    if ids.is_empty() {
        // An empty prompt still needs one token to predict from.
        ids.extend(tokenizer.bos().or(tokenizer.eos()));
    }
    if ids.is_empty() {
        return Err(Failure {
            kind: FailureKind::Request,
            message: "the prompt is empty, and the model has no token to begin with; write something".to_owned(),
            shortfall: None,
        });
    }
    Ok(ids)
}

fn render(
    loaded: &Loaded,
    messages: &[Message],
    continue_last: bool,
    thinking: Option<Thinking>,
) -> Result<Vec<u32>, Failure> {
    let messages: Vec<_> =
        messages.iter().map(|m| TemplateMessage { role: m.role.name(), content: &m.content }).collect();
    let options = RenderOptions { add_generation_prompt: !continue_last, continue_last, thinking };
    let text = loaded.template.render(&messages, &options).map_err(|error| Failure {
        kind: FailureKind::Request,
        message: error.to_string(),
        shortfall: None,
    })?;
    Ok(loaded.tokenizer.encode(&text, true))
}

/// Templates mostly write the BOS themselves; it is never doubled.
fn with_bos(loaded: &Loaded, mut ids: Vec<u32>) -> Vec<u32> {
    if let Some(bos) = loaded.tokenizer.add_bos()
        && ids.first() != Some(&bos)
    {
        ids.insert(0, bos);
    }
    ids
}

/// Bytes of text in a prompt.
fn text_bytes(prompt: &Prompt) -> usize {
    match prompt {
        Prompt::Tokens(_) => 0,
        Prompt::Raw(text) => text.len(),
        Prompt::Chat(messages) | Prompt::Continue(messages) => messages.iter().map(|m| m.content.len()).sum(),
    }
}

fn common_prefix(a: &[u32], b: &[u32]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn context_full(tokens: &str, context: usize, trained: u32) -> Failure {
    let advice = if context < trained as usize {
        "raise --ctx or the budget, or send less"
    } else {
        "the model was made for no more; send less, or begin a new chat"
    };
    Failure {
        kind: FailureKind::ContextFull,
        message: format!("the prompt has {tokens} and the context holds {context}: {advice}"),
        shortfall: None,
    }
}
