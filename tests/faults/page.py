"""The table of docs/reliability.md: each fault, what happens, the tests that inject it, and their number of cases."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
# (fault, what happens, tests)
FAULTS: list[tuple[str, str, tuple[str, ...]]] = [
    (
        "`kill -9` at any moment of a stage",
        "the same command resumes; the result is bit-identical to an undisturbed one",
        (
            "tests/faults/test_kills.py::test_killed_by_signal_9_and_run_again_nothing_differs",
            "tests/gt_bench/pipeline/test_train.py::test_kill_9_in_the_middle_and_start_again",
            "tests/gt_bench/pipeline/test_train.py::"
            "test_a_seed_that_is_killed_loses_no_other_and_the_same_command_resumes",
            "tests/gt_bench/pipeline/test_tune.py::"
            "test_a_killed_search_queues_its_trial_again_and_ends_as_if_it_had_not_been_killed",
            "tests/gt_bench/pipeline/test_tune.py::"
            "test_killed_after_any_entry_of_its_journal_a_search_ends_as_if_it_had_not_been",
            "tests/gt_bench/pipeline/test_tune.py::test_a_process_killed_while_it_writes_the_journal_blocks_nobody",
            "tests/gt_bench/search/test_optimize.py::test_a_killed_worker_s_trial_is_done_by_the_one_that_is_left",
            "tests/gt_bench/runtime/test_worker_pool.py::test_workers_go_with_a_parent_that_is_killed",
        ),
    ),
    (
        "`kill -9` of `dvc repro`",
        "`make reproduce` removes or renames broken lock files of DVC, with a line for each; the result is "
        "bit-identical to an undisturbed one, and no run is computed twice",
        (
            "tests/faults/test_repro.py::test_dvc_killed_by_signal_9_and_make_reproduce_nothing_differs",
            "tests/gt_bench/utils/test_dvc.py::test_a_lock_that_a_killed_process_left_broken_is_fixed",
            "tests/gt_bench/utils/test_dvc.py::test_a_lock_file_of_stages_that_was_left_broken_is_set_aside",
            "tests/gt_bench/scheduling/test_reproduce.py::test_a_killed_cell_leaves_its_row_and_a_board",
        ),
    ),
    (
        "`kill -9` while MLflow creates its database",
        "the database appears when it is complete; an incomplete one is renamed and created again from the records",
        (
            "tests/gt_bench/tracking/test_sqlite.py::test_one_is_whole_or_not_there_whenever_its_maker_is_killed",
            "tests/gt_bench/tracking/test_sqlite.py::test_one_that_was_only_begun_is_made_again_from_the_records",
        ),
    ),
    (
        "temporary files of killed processes",
        "removed by the next run of the stage if they are older than an hour, and by `gt-bench store prune`",
        (
            "tests/gt_bench/utils/test_tempfiles.py::test_each_stage_sweeps_where_it_writes",
            "tests/gt_bench/utils/test_tempfiles.py::test_all_that_is_old_goes_by_command",
            "tests/gt_bench/encodings/test_encode_dataset.py::test_what_killed_writers_left_is_swept",
        ),
    ),
    (
        "SIGTERM, SIGINT",
        "a checkpoint after the epoch, within 7 s; one line; status 143 or 130",
        (
            "tests/gt_bench/runtime/test_signals.py::test_a_run_ends_with_a_checkpoint_and_continues_as_if_uninterrupted",
            "tests/gt_bench/runtime/test_signals.py::test_an_epoch_that_outlasts_the_grace_is_left",
            "tests/gt_bench/runtime/test_signals.py::test_a_stage_that_is_told_to_stop",
            "tests/gt_bench/pipeline/test_train.py::"
            "test_stopped_by_a_scheduler_nobody_is_left_and_it_continues_from_the_checkpoints",
        ),
    ),
    (
        "a full disk",
        "one line that names the file or reports a full disk, status 1; every file has its old or its new "
        "content; the same command resumes. MLflow: a warning",
        (
            "tests/faults/test_disk.py::test_a_full_disk_is_reported_and_the_same_command_resumes",
            "tests/gt_bench/store/test_run_store.py::test_a_full_disk_leaves_everything_as_it_was",
            "tests/gt_bench/data/test_packed.py::test_a_full_disk_is_reported_and_leaves_the_old_folder",
            "tests/gt_bench/data/test_download.py::test_a_full_disk_is_no_missing_source",
            "tests/gt_bench/runtime/test_worker_pool.py::test_a_full_disk_ends_what_has_not_begun",
        ),
    ),
    (
        "a read-only folder",
        "one line that names it",
        (
            "tests/faults/test_disk.py::test_a_folder_that_can_only_be_read_is_named",
            "tests/gt_bench/store/test_run_store.py::test_a_store_that_cannot_be_written_is_named",
            "tests/gt_bench/data/test_inventory.py::test_a_file_in_the_place_of_a_folder_is_one_line",
        ),
    ),
    (
        "a clock that jumps by ten years",
        "nothing: no number, digest or lock of a living process depends on the clock",
        (
            "tests/faults/test_clock.py::test_a_clock_that_jumps_changes_nothing",
            "tests/gt_bench/utils/test_lease_lock.py::test_a_clock_that_jumps_takes_no_lock_from_the_living",
        ),
    ),
    (
        "a damaged checkpoint",
        "renamed, with one line; the run starts over",
        ("tests/gt_bench/training/test_checkpoint.py::test_a_damaged_checkpoint_is_renamed_and_the_run_starts_over",),
    ),
    (
        "a damaged or edited record",
        "rejected by its checksum with the name of its file and what to do; the leaderboard reports it in its row",
        (
            "tests/gt_bench/store/test_run_store.py::test_a_damaged_record_names_its_file",
            "tests/gt_bench/store/test_archive.py::test_a_damaged_record_of_the_store_is_one_clear_line_in_train",
            "tests/gt_bench/pipeline/test_leaderboard.py::"
            "test_a_broken_record_is_named_in_its_row_and_the_rest_continues",
        ),
    ),
    (
        "a damaged result",
        "reported in its row; DVC notices the change and runs the stage, which finds its runs in the store",
        (
            "tests/gt_bench/pipeline/test_leaderboard.py::test_a_broken_result_is_named_in_its_row",
            "tests/gt_bench/pipeline/test_leaderboard.py::"
            "test_a_result_of_another_form_is_named_in_its_row_and_the_rest_continues",
        ),
    ),
    (
        "a damaged journal of a search",
        "an incomplete last entry is removed; any other damage is reported with its line; trials are records and are "
        "not computed again",
        (
            "tests/gt_bench/search/test_storage.py::"
            "test_an_entry_that_was_only_begun_when_its_writer_was_killed_costs_nothing_else",
            "tests/gt_bench/search/test_storage.py::test_a_study_file_of_another_cell_and_one_that_is_none",
        ),
    ),
    (
        "damaged or edited packed data or header",
        "found by digest before a run reads them, if the file has changed; the download stage packs them again",
        (
            "tests/gt_bench/data/test_packed.py::test_other_bytes_of_the_same_length_are_found",
            "tests/gt_bench/data/test_packed.py::test_an_edited_header_is_found",
            "tests/gt_bench/data/test_packed.py::test_damaged_data_are_prepared_again_by_the_stage",
        ),
    ),
    (
        "damaged encodings",
        "found by digest before a run reads them, if the file has changed; the encode stage computes them again",
        (
            "tests/gt_bench/encodings/test_cache.py::test_a_damaged_file_is_named_and_computed_again",
            "tests/gt_bench/encodings/test_cache.py::test_the_arrays_are_read_again_only_when_their_file_has_changed",
        ),
    ),
    (
        "a damaged file of any of these kinds, a tuned recipe, weights, pins or states, in a finished project",
        "reported or renamed; afterwards all files are restored bit for bit",
        ("tests/faults/test_corruption.py::test_a_damaged_file_is_named_or_set_aside_and_made_again",),
    ),
    (
        "a damaged tracking database",
        "the project's own database is renamed and created again from the records; a database of another MLflow or "
        "another project is not changed, and the message names the remedy",
        (
            "tests/gt_bench/tracking/test_sqlite.py::"
            "test_one_that_is_no_database_is_set_aside_and_none_overwrites_another",
            "tests/gt_bench/tracking/test_sqlite.py::test_damage_within_is_named_with_the_remedy",
            "tests/gt_bench/tracking/test_sqlite.py::test_one_of_another_version_is_left_and_it_is_reported_what_to_do",
            "tests/gt_bench/tracking/test_sqlite.py::test_one_of_somebody_else_is_never_moved",
        ),
    ),
    (
        "a tracking store that is down, hangs, sends nonsense or dies",
        "training does not wait and succeeds with one warning; the leaderboard updates the store later",
        (
            "tests/gt_bench/tracking/test_live.py::test_a_server_that_is_down_costs_one_warning",
            "tests/gt_bench/tracking/test_live.py::test_a_server_that_never_answers_costs_one_warning",
            "tests/gt_bench/tracking/test_live_worker.py::test_a_server_that_talks_nonsense_costs_one_warning",
            "tests/gt_bench/tracking/test_live.py::"
            "test_a_store_that_dies_midway_costs_one_warning_and_is_completed_later",
        ),
    ),
    (
        "out of memory",
        "a row `oom`, before the kernel kills: the lowest limit of machine, control group and process counts; tried "
        "again where more memory is available",
        (
            "tests/gt_bench/runtime/test_resources.py::"
            "test_a_model_larger_than_its_control_group_is_a_row_and_no_killed_process",
            "tests/gt_bench/runtime/test_resources.py::"
            "test_a_process_under_ulimit_ends_as_oom_and_more_memory_is_tried_again",
            "tests/gt_bench/training/test_trainer.py::test_out_of_memory_is_a_record_and_a_bug_is_not",
            "tests/gt_bench/pipeline/test_train.py::"
            "test_out_of_memory_next_to_others_is_no_result_before_it_happened_alone",
        ),
    ),
    (
        "a loss or output that is not finite",
        "a row `diverged` with its epoch",
        (
            "tests/gt_bench/training/test_trainer.py::test_a_loss_that_is_not_a_number_is_a_record",
            "tests/gt_bench/training/test_trainer.py::test_what_is_not_finite_ends_the_run_as_diverged_with_its_epoch",
            "tests/gt_bench/pipeline/test_train.py::test_a_diverged_run_is_a_result",
        ),
    ),
    (
        "a source that hangs, breaks off or sends too much",
        "the next source is tried; partial downloads are resumed; at most the published size is read",
        (
            "tests/gt_bench/data/test_download.py::test_a_source_that_hangs_is_left_for_the_next_one",
            "tests/gt_bench/data/test_download.py::test_a_broken_download_is_continued",
            "tests/gt_bench/data/test_download.py::test_a_file_that_is_longer_than_published_is_not_read_to_its_end",
        ),
    ),
    (
        "a source that sends wrong bytes of the right length",
        "the file is renamed, and the next source is tried",
        (
            "tests/gt_bench/data/test_download.py::test_a_file_with_a_wrong_checksum_is_renamed_and_the_next_source_is_tried",
        ),
    ),
    (
        "several processes with the same task",
        "one computes, the others wait and use the result",
        (
            "tests/gt_bench/pipeline/test_train.py::test_two_processes_that_ask_for_the_same_cell_do_the_work_once",
            "tests/gt_bench/data/test_inventory.py::test_two_processes_prepare_once",
            "tests/gt_bench/encodings/test_compute.py::test_two_processes_do_the_work_once",
            "tests/gt_bench/utils/test_lease_lock.py::test_64_processes_on_two_machines_compute_each_run_once",
            "tests/gt_bench/tracking/test_sqlite.py::test_four_that_complete_a_new_store_at_once_write_each_run_once",
        ),
    ),
    (
        "an MLflow server with PostgreSQL and eight writers, one of them killed, and a restart of the server "
        "(`make test-cluster`)",
        "afterwards the experiment equals the records",
        ("tests/gt_bench/tracking/test_server.py::test_eight_writers_one_killed_and_a_restart_in_the_middle",),
    ),
    (
        "a search in PostgreSQL, one of four workers killed (`make test-cluster`)",
        "each trial is computed once",
        ("tests/gt_bench/test_postgres.py::test_four_workers_find_each_trial_once_and_a_killed_one_s_is_queued_again",),
    ),
    (
        "Slurm: a killed node, a time limit, `scancel`, a rejected job, two sweeps at once (`make test-cluster`)",
        "the results are bit-identical to those of one machine",
        ("tests/gt_bench/scheduling/test_slurm.py::test_whatever_happens_the_numbers_are_those_of_one_machine",),
    ),
]


def table(counts: Counter[str]) -> list[str]:
    lines = ["| fault | what happens | tests | cases |", "|---|---|---|---|"]
    for fault, happens, tests in FAULTS:
        named = "<br>".join(f"`{test.removeprefix('tests/')}`" for test in tests)
        lines.append(f"| {fault} | {happens} | {named} | {sum(counts[test] for test in tests)} |")
    return lines


def counted() -> Counter[str]:
    """Return the number of cases of each test, as pytest collects them."""
    files = sorted({test.partition("::")[0] for _, _, tests in FAULTS for test in tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-o", "addopts=", *files]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return Counter(line.partition("[")[0] for line in said.splitlines() if "::" in line)
