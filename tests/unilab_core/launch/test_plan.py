"""The plan is a pure function, and children get no more of the environment than they need."""

from unilab_core.launch.environment import child_environ
from unilab_core.launch.plan import plan
from unilab_core.run.child import child_parser
from unilab_core.run.threads import ThreadPlan


def test_collector_then_learner_each_with_its_threads(config):
    threads = ThreadPlan(learner=2, collector=1)
    collector, learner = plan(config, "job-1", threads, python="/py")
    assert collector.argv == ("/py", "-m", "unilab_collector", "--job", "job-1", "--rank", "0")
    assert learner.argv[2] == "unilab_learner"
    assert collector.environ["OMP_NUM_THREADS"] == "1"
    assert learner.environ["OMP_NUM_THREADS"] == "2"
    assert learner.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert learner.environ["MALLOC_TRIM_THRESHOLD_"] == str(256 << 20)
    assert "MALLOC_TRIM_THRESHOLD_" not in collector.environ


def test_children_understand_the_arguments_of_the_plan(config):
    for spec in plan(config, "job-1", ThreadPlan(learner=1, collector=1)):
        args = child_parser(spec.role).parse_args(list(spec.argv[3:]))
        assert (args.job, args.rank) == ("job-1", 0)


def test_without_thread_settings_libraries_decide(config):
    for spec in plan(config, "job-1", ThreadPlan(learner=None, collector=None)):
        assert "OMP_NUM_THREADS" not in spec.environ


def test_a_command_reads_as_one_would_type_it(config):
    spec = plan(config, "job-1", ThreadPlan(learner=1, collector=1), python="/a b/py")[0]
    assert spec.command().endswith("'/a b/py' -m unilab_collector --job job-1 --rank 0")
    assert "OMP_NUM_THREADS=1" in spec.command()


def test_secrets_stay_with_the_launcher_and_the_loggers_key_goes_to_the_learner_alone():
    parent = {
        "PATH": "/bin",
        "HOME": "/h",
        "MUJOCO_GL": "egl",
        "LC_ALL": "C",
        "UNILAB_RUNTIME_DIR": "/r",
        "AWS_SECRET_ACCESS_KEY": "canary",
        "GITHUB_TOKEN": "canary",
        "WANDB_API_KEY": "key",
    }
    collector = child_environ(parent, "collector", {"OMP_NUM_THREADS": "1"})
    learner = child_environ(parent, "learner", {})
    assert "canary" not in {*collector.values(), *learner.values()}
    assert collector["MUJOCO_GL"] == "egl"
    assert collector["OMP_NUM_THREADS"] == "1"
    assert "WANDB_API_KEY" not in collector
    assert learner["WANDB_API_KEY"] == "key"


def test_settings_of_a_child_win_over_what_is_passed_on():
    environ = child_environ({"OMP_NUM_THREADS": "8"}, "learner", {"OMP_NUM_THREADS": "2"})
    assert environ == {"OMP_NUM_THREADS": "2"}
