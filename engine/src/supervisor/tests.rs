//! The rules of the strategies, and a database whose source fails in the middle.

use super::*;

fn ages(seconds: &[u64]) -> Vec<Duration> {
    seconds.iter().map(|age| Duration::from_secs(*age)).collect()
}

#[test]
fn strategies_give_delays_until_they_give_up() {
    let millis = |time| Some(Duration::from_millis(time));
    assert_eq!(RestartStrategy::None.delay(&ages(&[0])), None);
    let fixed = RestartStrategy::FixedDelay { attempts: 2, delay_ms: 1000 };
    assert_eq!(fixed.delay(&ages(&[0])), millis(1000));
    assert_eq!(fixed.delay(&ages(&[3, 0])), millis(1000));
    assert_eq!(fixed.delay(&ages(&[5, 3, 0])), None);
    assert_eq!(fixed.delay(&ages(&[50, 30, 0])), millis(1000), "old failures do not count");
    let doubling = RestartStrategy::ExponentialDelay {
        initial_ms: 100,
        max_ms: 300,
        attempts: 3,
        reset_ms: 60_000,
    };
    assert_eq!(doubling.delay(&ages(&[0])), millis(100));
    assert_eq!(doubling.delay(&ages(&[1, 0])), millis(200));
    assert_eq!(doubling.delay(&ages(&[2, 1, 0])), millis(300));
    assert_eq!(doubling.delay(&ages(&[3, 2, 1, 0])), None);
    assert_eq!(doubling.delay(&ages(&[300, 200, 100, 0])), millis(100));
    let rate = RestartStrategy::FailureRate { failures: 2, interval_ms: 10_000, delay_ms: 5 };
    assert_eq!(rate.delay(&ages(&[20, 9, 0])), millis(5));
    assert_eq!(rate.delay(&ages(&[9, 4, 0])), None);
}
