use super::*;

const DAY: Duration = Duration::from_secs(24 * 3600);
const NOW: Duration = Duration::from_secs(1_800_000_000);

fn made(now: Duration) -> CertificatePair {
    CertificatePair::make("pliant-webhook.pliant-system.svc", LIFE, now).unwrap()
}

#[test]
fn a_certificate_begins_an_hour_early_and_ends_within_90_days() {
    let pair = made(NOW);
    assert_eq!(pair.expires(), Some(NOW + Duration::from_secs((90 * 24 - 1) * 3600)));
    assert!(!format!("{pair:?}").contains("PRIVATE"), "{pair:?}");
}

#[test]
fn a_new_one_is_due_after_two_thirds_and_shown_three_days_later() {
    let first = made(NOW);
    assert!(Pairs::default().are_due(NOW));
    let pairs = Pairs::default().with(first.clone(), NOW);
    assert_eq!(pairs.shown(|_| true, NOW), Some(&first), "there is no other one");
    let due = first.renewed_at();
    assert!(NOW + 59 * DAY < due && due < NOW + 60 * DAY, "{due:?}");
    assert!(!pairs.are_due(due.saturating_sub(Duration::from_secs(1))));
    assert!(pairs.are_due(due));

    let second = made(due);
    let both = pairs.with(second.clone(), due);
    assert!(!both.are_due(due), "a plan after its own apply is empty");
    assert_eq!(both.authorities(), format!("{}{}", second.authority, first.authority));
    assert_eq!(both.shown(|_| true, due), Some(&first));
    assert_eq!(both.next(due), second.shown_at().checked_sub(due));
    let later = due + 3 * DAY;
    assert_eq!(both.shown(|_| true, later), Some(&second));
    assert_eq!(both.shown(|authority| authority == first.authority, later), Some(&first));
    assert_eq!(both.next(later), second.renewed_at().checked_sub(later));

    let third = made(second.renewed_at());
    assert_eq!(both.with(third.clone(), second.renewed_at()), Pairs(vec![third, second]));
}

#[test]
fn after_a_long_sleep_there_is_one_that_is_good() {
    let pairs = Pairs::default().with(made(NOW), NOW);
    let late = NOW + 200 * DAY;
    let new = made(late);
    let pairs = pairs.with(new.clone(), late);
    assert_eq!(pairs, Pairs(vec![new.clone()]));
    assert_eq!(pairs.shown(|_| true, late), Some(&new));
}
