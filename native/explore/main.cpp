// Runs the cases and prints what was explored. `--help` says how.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include "explore/cases.hpp"
#include "explore/litmus.hpp"

using namespace ringmain::explore;

namespace {

struct Options {
    std::string only;
    bool deep = false, random = false, caught = false, compare = false, litmus = false;
    double limit_s = std::numeric_limits<double>::infinity();  // how fast a machine is decides nothing
};

constexpr const char* kHelp =
    "explore [--only TEXT] [--deep] [--seconds LIMIT] [--random | --caught | --compare | --litmus]\n"
    "  --only     cases whose \"contract: name\" contains TEXT\n"
    "  --deep     the larger cases too\n"
    "  --seconds  of processor time, without a limit by default; a case that takes longer is a failure: it "
    "was\n"
    "             not explored completely\n"
    "  --random   only the executions of random choices that come before the search of each case\n"
    "  --caught   the code is a mutant: succeed if some case fails\n"
    "  --compare  explore each case with every access interleaved, too: it must end in the same ways, or, "
    "if\n"
    "             there was not the time for all of it, in no others\n"
    "  --litmus   the explorer's own tests";

bool parse(int argc, char** argv, Options& o) {
    for (int i = 1; i < argc; ++i) {
        std::string argument = argv[i];
        bool more = i + 1 < argc;
        if (argument == "--deep")
            o.deep = true;
        else if (argument == "--random")
            o.random = true;
        else if (argument == "--caught")
            o.caught = true;
        else if (argument == "--compare")
            o.compare = true;
        else if (argument == "--litmus")
            o.litmus = true;
        else if (argument == "--seconds" && more)
            o.limit_s = std::atof(argv[++i]);
        else if (argument == "--only" && more)
            o.only = argv[++i];
        else
            return false;
    }
    return true;
}

Explored run(const Case& c, const Options& options) {
    Explored o = explore(c, options.limit_s, options.random);
    std::printf("%-10s %-48s %10lu %10lu %12lu %6zu %8.2f%s\n", c.contract.c_str(),
                (c.name + (c.plain ? " (plain)" : "")).c_str(), o.executions, o.states, o.steps,
                o.ends.size(), o.seconds, o.error.empty() && !o.whole ? "  INCOMPLETE" : "");
    if (!o.error.empty())
        std::printf("  %s: %s\n", o.beyond ? "BEYOND THE EXPLORER'S LIMITS" : "BROKEN", o.error.c_str());
    std::fflush(stdout);
    return o;
}

}  // namespace

int main(int argc, char** argv) {
    Options options;
    if (!parse(argc, argv, options)) {
        std::puts(kHelp);
        return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
    }
    if (options.litmus) return run_litmus() != 0;
    std::printf("%-10s %-48s %10s %10s %12s %6s %8s\n", "contract", "case", "executions", "states", "steps",
                "ends", "seconds");
    int failures = 0, cases_run = 0;
    for (Case& c : all_cases()) {
        bool asked_for = (c.contract + ": " + c.name).find(options.only) != std::string::npos;
        if (!asked_for || (c.deep && !options.deep)) continue;
        ++cases_run;
        Explored o = run(c, options);
        if (options.caught && !o.error.empty()) return o.beyond;
        failures += !o.error.empty() || !o.whole;
        if (!options.compare) continue;
        c.plain = true;
        Explored plain = run(c, options);
        bool same = plain.whole ? plain.ends == o.ends
                                : std::ranges::includes(o.ends, plain.ends);  // of those explored in time
        if (plain.error.empty() && same) continue;
        std::puts("  DIFFERENT: the reduction leaves out, or makes up, ways to end");
        ++failures;
    }
    if (cases_run == 0) std::puts("there is no such case");
    if (options.caught) std::puts("the mutant survived: no case caught it");
    return failures != 0 || cases_run == 0 || options.caught;
}
