//! `/set`: the settings of sampling, shown and changed.

use super::{Effects, listing};
use crate::session::Record;
use crate::tui::app::{App, Settings};
use crate::tui::message::{Effect, Job};

pub(super) fn command(app: &mut App, argument: &str) -> Effects {
    let mut words = argument.split_whitespace();
    let Some(name) = words.next() else {
        let shown = shown(&app.settings);
        listing(app, shown);
        return Vec::new();
    };
    match set(&mut app.settings, name, words.next()) {
        Ok(()) => {
            app.status = Some(format!("{name} set, from the next answer on"));
            vec![save(app)]
        }
        Err(message) => {
            app.status = Some(message);
            Vec::new()
        }
    }
}

/// The settings in force, for the saved chat.
pub(super) fn save(app: &App) -> Effect {
    let Settings { sampling, system, .. } = app.settings.clone();
    Effect::Job(Job::Append(Record::Settings { sampling, system }))
}

fn shown(settings: &Settings) -> String {
    let s = &settings.sampling;
    let or = |value: Option<String>, none: &str| value.unwrap_or_else(|| none.to_owned());
    [
        ("temp", s.temperature.to_string()),
        ("top-k", s.top_k.to_string()),
        ("top-p", s.top_p.to_string()),
        ("min-p", s.min_p.to_string()),
        ("repeat-penalty", s.repeat_penalty.to_string()),
        ("seed", or(s.seed.map(|n| n.to_string()), "random")),
        ("max-tokens", or(settings.max_tokens.map(|n| n.to_string()), "none")),
    ]
    .map(|(name, value)| format!("{name:16}{value}"))
    .join("\n")
}

fn set(settings: &mut Settings, name: &str, value: Option<&str>) -> Result<(), String> {
    let value = value.ok_or_else(|| format!("/set {name} VALUE"))?;
    let real = |low: f32, high: f32| match value.parse::<f32>() {
        Ok(v) if (low..=high).contains(&v) => Ok(v),
        _ => Err(format!("{name} wants a number from {low} to {high}, not {value:?}")),
    };
    let whole = || value.parse::<u32>().map_err(|_| format!("{name} wants a whole number, not {value:?}"));
    let unset = matches!(value, "none" | "off" | "random");
    let s = &mut settings.sampling;
    match name {
        "temp" | "temperature" => s.temperature = real(0.0, 10.0)?,
        "top-k" => s.top_k = whole()?,
        "top-p" => s.top_p = real(0.0, 1.0)?,
        "min-p" => s.min_p = real(0.0, 1.0)?,
        "repeat-penalty" => s.repeat_penalty = real(0.1, 10.0)?,
        "seed" if unset => s.seed = None,
        "seed" => {
            s.seed = Some(value.parse().map_err(|_| format!("seed wants a whole number or random, not {value:?}"))?)
        }
        "max-tokens" if unset => settings.max_tokens = None,
        "max-tokens" => settings.max_tokens = Some(whole()?.max(1)),
        _ => return Err(format!("{name} is no setting; /set lists them")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::protocol::Sampling;

    #[test]
    fn settings_are_checked_before_they_change() {
        let mut s = Settings {
            system: None,
            sampling: Sampling::default(),
            stop: Vec::new(),
            max_tokens: None,
            thinking: None,
        };
        set(&mut s, "temp", Some("0.2")).unwrap();
        set(&mut s, "seed", Some("7")).unwrap();
        assert_eq!((s.sampling.temperature, s.sampling.seed), (0.2, Some(7)));
        set(&mut s, "seed", Some("random")).unwrap();
        assert_eq!(s.sampling.seed, None);
        for (name, value) in [("temp", "hot"), ("temp", "-1"), ("top-p", "2"), ("temp", "NaN"), ("warmth", "1")] {
            assert!(set(&mut s, name, Some(value)).is_err(), "{name} {value}");
        }
        assert_eq!(s.sampling.temperature, 0.2);
    }
}
