// Runs the cases and prints what was explored. `--help` says how.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "cases.hpp"
#include "litmus.hpp"

using namespace ringmain::explore;

int main(int argc, char** argv) {
    std::string only;
    bool deep = false, expect_failure = false;
    double limit_s = 60;
    for (int i = 1; i < argc; ++i) {
        std::string argument = argv[i];
        if (argument == "--deep")
            deep = true;
        else if (argument == "--litmus")
            return run_litmus() != 0;
        else if (argument == "--caught")
            expect_failure = true;
        else if (argument == "--seconds" && i + 1 < argc)
            limit_s = std::atof(argv[++i]);
        else if (argument == "--only" && i + 1 < argc)
            only = argv[++i];
        else {
            std::puts(
                "explore [--only TEXT] [--deep] [--seconds LIMIT] [--caught]\n"
                "  --only     cases whose \"contract: name\" contains TEXT\n"
                "  --deep     the larger cases too\n"
                "  --seconds  a case that takes longer is a failure: it was not explored whole\n"
                "  --caught   the code is a mutant: succeed if some case fails");
            return argument == "--help" ? 0 : 2;
        }
    }
    std::printf("%-11s %-36s %10s %10s %11s %8s\n", "contract", "case", "executions", "states", "steps",
                "seconds");
    int failures = 0;
    for (const Case& c : all_cases()) {
        if ((c.contract + ": " + c.name).find(only) == std::string::npos || (c.deep && !deep)) continue;
        Outcome o = explore(c, limit_s);
        std::printf("%-11s %-36s %10lu %10lu %11lu %4lu %8.2f%s\n", c.contract.c_str(), c.name.c_str(),
                    o.executions, o.states, o.steps, o.restarts, o.seconds,
                    o.error.empty() && !o.whole ? "  NOT WHOLE" : "");
        std::fflush(stdout);
        if (!o.error.empty()) {
            std::printf("  %s: %s\n", o.beyond ? "BEYOND THE EXPLORER" : "BROKEN", o.error.c_str());
            if (expect_failure) return o.beyond;
        }
        failures += !o.error.empty() || !o.whole;
    }
    if (expect_failure) {
        std::puts("the mutant survived: no case caught it");
        return 1;
    }
    return failures != 0;
}
