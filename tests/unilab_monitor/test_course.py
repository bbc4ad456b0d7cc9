from unilab_monitor.course import Course, Rhythm

SECOND = 1_000_000_000


def test_values_of_one_bucket_are_averaged():
    course = Course(bucket_ns=SECOND, capacity=4)
    course.add(0, 1.0)
    course.add(SECOND // 2, 3.0)
    course.add(SECOND, 10.0)
    assert course.values() == (2.0, 10.0)


def test_a_full_course_merges_pairs_and_doubles_its_buckets():
    course = Course(bucket_ns=SECOND, capacity=4)
    for second, value in enumerate([1.0, 2.0, 3.0, 4.0, 5.0]):
        course.add(second * SECOND, value)
    assert course.values() == (1.5, 3.5, 5.0)
    course.add(5 * SECOND, 7.0)  # the bucket of 5.0 is two seconds long now
    assert course.values() == (1.5, 3.5, 6.0)


def test_a_course_ignores_what_is_absent_or_not_finite():
    course = Course(bucket_ns=SECOND, capacity=4)
    for value in (None, float("nan"), float("inf")):
        course.add(0, value)
    assert course.values() == ()


def test_a_source_is_silent_after_two_seconds_when_it_sends_often():
    rhythm = Rhythm(min_silence_s=2.0, gaps=5.0)
    for k in range(100):
        rhythm.add(k * SECOND // 50)
    last_ns = 99 * SECOND // 50
    assert not rhythm.is_silent(last_ns + 2 * SECOND)
    assert rhythm.is_silent(last_ns + 2 * SECOND + 1)


def test_a_slow_source_is_given_five_of_its_own_gaps():
    rhythm = Rhythm(min_silence_s=2.0, gaps=5.0)
    for k in range(200):
        rhythm.add(k * 3 * SECOND)
    last_ns = 199 * 3 * SECOND
    assert not rhythm.is_silent(last_ns + 14 * SECOND)
    assert rhythm.is_silent(last_ns + 16 * SECOND)


def test_nothing_is_silent_before_its_first_record_and_ages_are_never_negative():
    rhythm = Rhythm(min_silence_s=2.0, gaps=5.0)
    assert rhythm.age_s(0) is None
    assert not rhythm.is_silent(100 * SECOND)
    rhythm.add(10 * SECOND)
    assert rhythm.age_s(9 * SECOND) == 0.0
    rhythm.add(8 * SECOND)  # a record that arrives late does not make the source older
    assert rhythm.age_s(12 * SECOND) == 2.0
