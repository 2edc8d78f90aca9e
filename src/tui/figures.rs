//! Figures as the screen writes them.

use crate::engine::protocol::SpeedFigures;

/// Tokens a second, three figures or so: `14.2`, `0.43`, `1.95`, `322`.
pub fn rate(tok_s: f32) -> String {
    match tok_s {
        // Nothing measured yet.
        r if !r.is_finite() || r <= 0.0 => "-".to_owned(),
        r if r < 10.0 => format!("{r:.2}"),
        r if r < 99.95 => format!("{r:.1}"),
        r => format!("{r:.0}"),
    }
}

/// Seconds left or passed: `4 s`, `2 min 5 s`, `1 h 3 min`.
pub fn duration(seconds: f64) -> String {
    let s = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// Microseconds in three or four columns: `0`, `840us`, `1.1ms`, `12ms`, `1.2s`.
pub fn micros(us: u32) -> String {
    match us {
        0 => "0".to_owned(),
        1..1000 => format!("{us}us"),
        1000..10_000 => format!("{:.1}ms", f64::from(us) / 1e3),
        10_000..1_000_000 => format!("{}ms", us / 1000),
        _ => format!("{:.1}s", f64::from(us) / 1e6),
    }
}

/// A rate of bytes in decimal megabytes, as disks are sold: `812 MB/s`, `1.9 GB/s`.
pub fn byte_rate(bytes_s: u64) -> String {
    let b = bytes_s as f64;
    if b < 999.5e6 { format!("{:.0} MB/s", b / 1e6) } else { format!("{:.1} GB/s", b / 1e9) }
}

/// `disk 812 MB/s of 1.9 GB/s`; without the latter where the disk was never measured.
pub fn disk_rate(speed: &SpeedFigures) -> String {
    match (speed.disk_bytes_s, speed.disk_calibrated_bytes_s) {
        (0, 0) => "disk -".to_owned(),
        (now, 0) => format!("disk {}", byte_rate(now)),
        (now, best) => format!("disk {} of {}", byte_rate(now), byte_rate(best)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_take_few_columns_at_any_size() {
        assert_eq!([0.0, 0.043, 1.95, 14.24, 322.4].map(rate), ["-", "0.04", "1.95", "14.2", "322"]);
        assert_eq!([3.6, 125.0, 3780.0].map(duration), ["4 s", "2 min 5 s", "1 h 3 min"]);
        assert_eq!([0, 840, 1100, 12_300, 1_200_000].map(micros), ["0", "840us", "1.1ms", "12ms", "1.2s"]);
        assert_eq!([812_000_000, 1_900_000_000].map(byte_rate), ["812 MB/s", "1.9 GB/s"]);
    }
}
